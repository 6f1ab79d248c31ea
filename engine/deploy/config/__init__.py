"""Job files: layers, sections, JSON Schema, scaffold."""
