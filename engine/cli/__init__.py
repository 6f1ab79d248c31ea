"""The command ``fluvial``: one module per group of commands, and their output."""
