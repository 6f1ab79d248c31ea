"""Walks over lineage: graph, impact, views for people."""
