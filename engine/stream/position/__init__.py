"""The position of a stream, and the plan of its next batch: pure."""
