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

_ALL: Final[tuple[Procedure[Any], ...]] = (
    analyze,
    audit_publish,
    compact,
    compact_database,
    cluster,
    drop_partition,
    expire_partitions,
    mark_partition_done,
    expire_snapshots,
    expire_changelogs,
    purge_files,
    create_tag,
    create_tag_from_timestamp,
    delete_tag,
    rename_tag,
    replace_tag,
    expire_tags,
    create_savepoint,
    delete_savepoint,
    rollback_to_savepoint,
    restore_checkpoint,
    trigger_tag_automatic_creation,
    create_branch,
    delete_branch,
    rename_branch,
    merge_branch,
    fast_forward,
    replace_main_branch,
    create_consistent_tag,
    rollback_to_cut,
    rewind_checkpoint,
    reset_consumer,
    clear_consumers,
    delete_table_lineage,
    delete_data_lineage,
    remove_orphan_files,
    verify,
    repair,
    repair_earliest_snapshot,
    remove_unexisting_files,
    remove_unexisting_manifests,
    compact_manifest,
    rollback_to_as_latest,
    rollback,
    rollback_to_timestamp,
    rollback_to_watermark,
    rescale,
    reset_log,
    adopt_copy,
    sign_log,
    sync_log,
    remove_stored_login,
    rewrite_file_index,
    table_diff,
    impact,
    recovery_plan,
    validate_snapshot,
    repair_lineage,
    state_lineage,
    copy,
    export,
    migrate_table,
)
PROCEDURES: Final[Mapping[str, Procedure[Any]]] = {each.name: each for each in _ALL}
"""All procedures by name, in display order."""


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
