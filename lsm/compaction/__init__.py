"""Compaction strategies as values."""
