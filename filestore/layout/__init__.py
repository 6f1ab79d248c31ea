"""The layout of a table: paths, branch names, branch state."""
