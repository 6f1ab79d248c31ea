"""Values that a source left out of its updates, filled in from the table before a batch is encoded."""
