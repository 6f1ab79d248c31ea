"""Files, clocks, names, object stores, the commit lock."""
