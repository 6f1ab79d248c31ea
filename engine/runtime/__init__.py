"""The process: metrics, logging, step events, scratch directories, Spark's messages."""
