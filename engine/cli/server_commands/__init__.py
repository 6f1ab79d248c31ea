"""Commands that serve tables to other programs until they are stopped."""
