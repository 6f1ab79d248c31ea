"""Micro-batches as spans of time: steps are written to files, and read back as a trace."""
