"""Spark's catalog in Python: what the JVM calls when a statement names a table of Fluvial."""
