"""What the commands for whole databases show: comparisons with the source, and surveys of topics."""
