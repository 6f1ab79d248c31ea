"""Fluvial's SQL behind Spark's own: ``engine.install`` and what the parsers of Spark's sessions ask."""
