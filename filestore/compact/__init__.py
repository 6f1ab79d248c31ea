"""Compaction of buckets: pick, task, merge tree, append, postponed. Source: Paimon's mergetree.compact."""
