"""System tables by name: ``db.t$files`` and the like, ``db.t$audit_log``, and ``sys.tables`` of a catalog."""

from engine.system_tables.names import is_system_name, is_system_table
from engine.system_tables.read import SystemRead, open_system, system_arrow

__all__ = ["SystemRead", "is_system_name", "is_system_table", "open_system", "system_arrow"]
