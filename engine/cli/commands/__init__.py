"""The commands of ``fluvial``, a module for each group."""
