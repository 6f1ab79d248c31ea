"""Where a stream is, and what its next batch holds: pure."""
