"""How a table is doing: inspection, probe, lag, doctor, metrics of tables and queries."""
