"""Copies of a table for readers of other formats."""
