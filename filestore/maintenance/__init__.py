"""Expiry, orphans, rollback, verification, rewriting."""
