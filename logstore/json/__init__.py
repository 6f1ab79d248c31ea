"""JSON and Arrow columns, converted in bulk."""
