"""How a schema becomes another: changes, merging, crossing, publication."""
