"""Fluvial's public names: tables, SQL, the streaming sink, and a Spark session that suits them."""

from engine.catalog import Catalog
from engine.session import session
from engine.sink import sink
from engine.sql import sql
from engine.table import Table

__all__ = ["Catalog", "Table", "session", "sink", "sql"]
