"""Servers that tables can live in, as real processes: an object store and a SQL database."""
