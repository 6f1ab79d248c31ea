"""The way of one micro-batch: sink, batch writer, task part, routing, overwrite, housekeeping."""
