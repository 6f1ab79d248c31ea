"""Lineage as a graph: construction, impact analysis, views for people."""
