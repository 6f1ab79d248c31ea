"""The commit protocol: conflicts, guards, history, the writing of snapshots."""
