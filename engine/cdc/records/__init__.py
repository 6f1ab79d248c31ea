"""From records of change topics to rows of tables: routing, the two passes over a range, added columns."""
