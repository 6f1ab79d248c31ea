"""The options of a table, in groups: each is declared here and nowhere else."""
