"""Snapshot and filter to splits: live files, pruning, packing. Source: Paimon's FileStoreScan."""
