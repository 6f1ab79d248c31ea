"""Hashes of whole columns: Murmur3 buckets, xxh64, row hash."""
