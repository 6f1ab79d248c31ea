"""Consistent tags: one moment of many tables, as tags with the same name."""
