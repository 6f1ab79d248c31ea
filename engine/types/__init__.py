"""Rows and column types between Spark, Arrow and the table."""
