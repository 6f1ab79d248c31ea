"""What is kept beside data files: bloom filters, deletion vectors, index manifests."""
