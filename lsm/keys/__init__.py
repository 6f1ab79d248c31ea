"""Key order of columns and groups of equal keys."""
