"""SQL of Fluvial: parsed here by sqlglot; what is Spark's is handed to Spark."""
