"""Data types, BinaryRow, casts and the text of values. Source: Paimon's packages types, data and casting."""
