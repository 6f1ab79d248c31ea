"""The state of tables and queries: inspection, probe, lag, doctor, metrics."""
