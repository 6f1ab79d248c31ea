"""Options: declarations, and the values parsed from them."""
