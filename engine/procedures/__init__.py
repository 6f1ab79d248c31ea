"""Procedures on tables and catalogs: ``procedures.compact(table)``, ``CALL sys.compact(...)``, ``fluvial compact``."""

from collections.abc import Mapping
from typing import Any, Final

from engine.procedures.consumers import clear_consumers, reset_consumer
from engine.procedures.lineage import delete_data_lineage, delete_table_lineage, repair_lineage, state_lineage
from engine.procedures.maintenance.analysis import analyze
from engine.procedures.maintenance.clustering import cluster
from engine.procedures.maintenance.compaction import compact, compact_database
from engine.procedures.maintenance.copying import copy
from engine.procedures.maintenance.exporting import export
from engine.procedures.maintenance.logins import remove_stored_login
from engine.procedures.maintenance.logs import adopt_copy, reset_log, sign_log, sync_log
from engine.procedures.maintenance.migration import migrate_table
from engine.procedures.maintenance.partitions import drop_partition, expire_partitions, mark_partition_done
from engine.procedures.maintenance.purging import purge_files
from engine.procedures.maintenance.repair import remove_orphan_files, repair, repair_earliest_snapshot, verify
from engine.procedures.maintenance.rewriting import (
    compact_manifest,
    remove_unexisting_files,
    remove_unexisting_manifests,
    rescale,
    rewrite_file_index,
    rollback_to_as_latest,
)
from engine.procedures.recovery import impact, recovery_plan, validate_snapshot
from engine.procedures.registry import Procedure
from engine.procedures.versions.auditing import audit_publish
from engine.procedures.versions.branches import (
    create_branch,
    delete_branch,
    fast_forward,
    merge_branch,
    rename_branch,
    replace_main_branch,
)
from engine.procedures.versions.comparing import table_diff
from engine.procedures.versions.cuts import create_consistent_tag, rewind_checkpoint, rollback_to_cut
from engine.procedures.versions.rollback import rollback, rollback_to_timestamp, rollback_to_watermark
from engine.procedures.versions.savepoints import (
    create_savepoint,
    delete_savepoint,
    restore_checkpoint,
    rollback_to_savepoint,
)
from engine.procedures.versions.snapshots import expire_changelogs, expire_snapshots
from engine.procedures.versions.tags import (
    create_tag,
    create_tag_from_timestamp,
    delete_tag,
    expire_tags,
    rename_tag,
    replace_tag,
    trigger_tag_automatic_creation,
)

__all__ = [
    "PROCEDURES",
    "Procedure",
    "adopt_copy",
    "analyze",
    "audit_publish",
    "clear_consumers",
    "cluster",
    "compact",
    "compact_database",
    "compact_manifest",
    "copy",
    "create_branch",
    "create_consistent_tag",
    "create_savepoint",
    "create_tag",
    "create_tag_from_timestamp",
    "delete_branch",
    "delete_data_lineage",
    "delete_savepoint",
    "delete_table_lineage",
    "delete_tag",
    "drop_partition",
    "expire_changelogs",
    "expire_partitions",
    "expire_snapshots",
    "expire_tags",
    "export",
    "fast_forward",
    "impact",
    "mark_partition_done",
    "merge_branch",
    "migrate_table",
    "purge_files",
    "recovery_plan",
    "remove_orphan_files",
    "remove_stored_login",
    "remove_unexisting_files",
    "remove_unexisting_manifests",
    "rename_branch",
    "rename_tag",
    "repair",
    "repair_earliest_snapshot",
    "repair_lineage",
    "replace_main_branch",
    "replace_tag",
    "rescale",
    "reset_consumer",
    "reset_log",
    "restore_checkpoint",
    "rewind_checkpoint",
    "rewrite_file_index",
    "rollback",
    "rollback_to_as_latest",
    "rollback_to_cut",
    "rollback_to_savepoint",
    "rollback_to_timestamp",
    "rollback_to_watermark",
    "sign_log",
    "state_lineage",
    "sync_log",
    "table_diff",
    "trigger_tag_automatic_creation",
    "validate_snapshot",
    "verify",
]

PROCEDURES: Final[Mapping[str, Procedure[Any]]] = {
    name: made for name in __all__ if isinstance(made := globals().get(name), Procedure)
}
"""All procedures by name, in order of their names."""
