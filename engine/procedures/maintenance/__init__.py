"""Maintenance procedures: compaction, partitions, purging, repair, rewriting, migration."""
