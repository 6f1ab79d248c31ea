"""Changes that bypassed a table's log: they go to the log later, or a record says that they do not."""
