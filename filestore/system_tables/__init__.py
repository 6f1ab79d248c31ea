"""System tables: a table's metadata as rows. They need only files, neither Spark nor Kafka.

Source: the columns of Paimon's tables of the same names, followed by Fluvial's.
"""

from collections.abc import Mapping
from typing import Final

from filestore.system_tables.definition import AGGREGATION_FIELDS, OPTIONS_TABLE, SCHEMAS
from filestore.system_tables.files import FILE_KEY_RANGES, FILES
from filestore.system_tables.history import COMMITS, COMPACTIONS, LOG_OFFSETS, SNAPSHOTS, STATISTICS
from filestore.system_tables.indexes import FILE_INDEXES
from filestore.system_tables.layout import BUCKETS, MANIFESTS, PARTITIONS
from filestore.system_tables.references import BRANCHES, CONSUMERS, SAVEPOINTS, TAGS
from filestore.system_tables.system_table import SystemTable

__all__ = ["SYSTEM_TABLES", "SystemTable"]

SYSTEM_TABLES: Final[Mapping[str, SystemTable]] = {
    each.name: each
    for each in (
        SNAPSHOTS,
        SCHEMAS,
        OPTIONS_TABLE,
        MANIFESTS,
        FILES,
        PARTITIONS,
        BUCKETS,
        TAGS,
        SAVEPOINTS,
        BRANCHES,
        CONSUMERS,
        STATISTICS,
        AGGREGATION_FIELDS,
        LOG_OFFSETS,
        COMMITS,
        COMPACTIONS,
        FILE_KEY_RANGES,
        FILE_INDEXES,
    )
}
"""System tables by the name after the dollar sign."""
