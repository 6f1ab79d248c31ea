"""The files of a Spark checkpoint: read, kept with savepoints, restored."""
