"""Commands that follow tables."""
