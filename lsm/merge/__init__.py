"""Merging sorted runs; merge functions."""
