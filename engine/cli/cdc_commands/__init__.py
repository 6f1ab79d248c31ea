"""Commands for whole databases: comparisons with the source, and surveys of topics."""
