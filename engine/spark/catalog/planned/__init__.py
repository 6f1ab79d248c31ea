"""What Spark plans itself, without a text: changes of rows (``mergeInto``, AUTO CDC) and of tables (pipelines)."""
