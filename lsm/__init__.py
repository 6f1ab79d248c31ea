"""The log-structured merge tree as computation: key order, memtable, levels, compaction picks, merging."""
