"""Batch reads: state, plan, pieces, Arrow or a Spark frame."""
