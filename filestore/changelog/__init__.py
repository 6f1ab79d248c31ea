"""The changes of snapshots, read from files."""
