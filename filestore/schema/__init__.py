"""Schemas and their files, validation, merge engine, counted rows."""
