"""Where lineage is kept: interface, entities, SQL database."""
