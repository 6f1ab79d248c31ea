"""Consistent cuts: one moment of many tables, as tags of one name."""
