"""Micro-batches that the driver writes itself, in threads: on a local master, where no other machine would help."""
