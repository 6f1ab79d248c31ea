"""Recoveries of tables by the pipelines of job files: planned, written down, carried out, continued after a crash."""
