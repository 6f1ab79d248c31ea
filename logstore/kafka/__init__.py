"""Kafka clients, topics and transactions."""
