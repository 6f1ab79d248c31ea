"""Writing and reading single data files in the schema of the reader. Source: Paimon's package io."""
