"""Iceberg metadata over a table's own data files."""
