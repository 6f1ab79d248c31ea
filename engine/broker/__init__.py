"""A real Kafka broker on this machine, and its jars."""
