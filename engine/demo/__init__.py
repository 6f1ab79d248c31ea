"""The demo: flights from New York in 2013 as a change stream, ingested, read back and verified."""
