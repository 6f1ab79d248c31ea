"""Procedures on versions: branches, tags, savepoints, snapshots, rollback, comparison."""
