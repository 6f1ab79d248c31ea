"""Tags and savepoints: created, renamed, expired. Source: Paimon's package tag."""
