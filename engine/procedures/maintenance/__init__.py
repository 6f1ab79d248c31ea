"""Procedures that look after files: compaction, partitions, purging, repair, rewriting, migration."""
