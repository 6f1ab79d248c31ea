"""Splits to merged rows; look-up by key."""
