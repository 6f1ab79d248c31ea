"""Procedures on tables and catalogs: ``procedures.compact(table)``, ``CALL sys.compact(...)``, ``fluvial compact``."""

from collections.abc import Mapping
from typing import Any, Final

from engine.procedures.compaction import compact, compact_database
from engine.procedures.partitions import drop_partition, expire_partitions, mark_partition_done
from engine.procedures.registry import Procedure

__all__ = [
    "PROCEDURES",
    "compact",
    "compact_database",
    "drop_partition",
    "expire_partitions",
    "mark_partition_done",
]

PROCEDURES: Final[Mapping[str, Procedure[Any]]] = {
    each.name: each
    for each in (
        compact,
        compact_database,
        drop_partition,
        expire_partitions,
        mark_partition_done,
    )
}
"""By name, in the order in which they are shown."""
