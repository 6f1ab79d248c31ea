"""Lineage: which jobs read and write which tables, and which snapshots belong together.

This package is a leaf of ``engine``: catalogs, streams and system tables import it, it imports none of them.
"""
