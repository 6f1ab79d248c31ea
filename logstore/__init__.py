"""The change log in Kafka: encoding, transactions with markers, ranges of offsets."""
