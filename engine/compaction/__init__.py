"""Compaction beside a stream: in the background, as Spark tasks, in jobs of its own."""
