"""Batches that end between transactions of the source, and the tag over all tables that each leaves."""
