"""Commands that write files for jobs."""
