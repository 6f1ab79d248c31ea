"""Changes of single rows that Spark plans itself: ``mergeInto`` of frames, and the flows of AUTO CDC."""
