"""The files of a Spark checkpoint: reading, saving with savepoints, restoring."""
