"""A whole database from its change topics: one job, one streaming query, one table for each source table."""
