"""Spark's SQL and what Fluvial adds to it, as a dialect of sqlglot."""

from sqlglot.dialects.spark import Spark


class FluvialDialect(Spark):
    """Spark's grammar with tables of Fluvial."""
