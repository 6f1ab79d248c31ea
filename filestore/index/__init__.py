"""Indexes beside data files: bloom filters, deletion vectors, index manifests."""
