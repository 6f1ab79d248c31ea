"""SELECT and EXPLAIN: references, reads, pruning."""
