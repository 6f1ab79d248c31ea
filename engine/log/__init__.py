"""A table's Kafka log from the table's side: its options, its tail merged over files, one bucket's transaction."""
