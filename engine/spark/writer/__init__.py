"""The writer of `format("fluvial")`: tasks write files or stage rows, and one process commits."""
