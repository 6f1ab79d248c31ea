"""Branches: created, merged, fast-forwarded, made main."""
