"""Whole databases from their change topics: one job, one table for each source table."""
