"""Tables of columnar files in Apache Paimon's layout: format, scan, read, write, commit, compaction."""
