"""Snapshot files, change tracking and consumers."""
