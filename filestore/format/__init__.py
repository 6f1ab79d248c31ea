"""Data file formats and their statistics: Parquet, ORC, Avro. Source: Paimon's packages format and stats."""
