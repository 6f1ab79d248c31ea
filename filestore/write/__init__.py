"""Rows to files of buckets. Source: Paimon's package table.sink."""
