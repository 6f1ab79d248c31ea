"""Where everything of a table lies: paths, branch names, branch state."""
