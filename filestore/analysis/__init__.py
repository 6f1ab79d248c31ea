"""Statistics of a table's columns for planners, in Paimon's form."""
