"""The commands of ``fluvial``, one module per group."""
