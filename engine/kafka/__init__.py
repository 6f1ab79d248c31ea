"""The Spark source ``fluvial-kafka``: Kafka topics as rows."""
