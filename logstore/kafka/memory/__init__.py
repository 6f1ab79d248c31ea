"""A Kafka cluster in memory, at the level of the confluent_kafka clients."""
