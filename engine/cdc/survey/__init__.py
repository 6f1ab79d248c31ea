"""The survey of a database that no job has read: it derives tables, keys and columns, with losses, from its records."""
