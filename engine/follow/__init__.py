"""Tables followed by Python programs without Spark: streams, live copies, writers of small writes, a server."""
