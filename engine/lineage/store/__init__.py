"""The lineage store: interface, entities, SQL database."""
