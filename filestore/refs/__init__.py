"""Live references, the names of versions, and the rules by which files are deleted."""
