"""The options of ``format("fluvial")``, parsed into values."""
