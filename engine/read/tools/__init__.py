"""Rows as other Python tools take them: Arrow streams, datasets, Polars, DuckDB, pandas."""
