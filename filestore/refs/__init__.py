"""What keeps snapshots alive, the names they are found by, and who may delete files."""
