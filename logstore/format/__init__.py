"""Record formats: debezium-json, changelog JSON, Avro, Connect schemas."""
