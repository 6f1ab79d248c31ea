"""The difference of two states of a table."""
