"""The command ``fluvial``: one module per group of commands, and what they print."""
