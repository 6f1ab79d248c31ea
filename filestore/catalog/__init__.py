"""Warehouses, table names, the file catalog and the SQL catalog."""
