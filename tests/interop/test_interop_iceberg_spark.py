"""Spark SQL with Iceberg's runtime reads what our metadata says, and nothing else."""

from pathlib import Path

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import AddColumn, RenameColumn
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import DataType
from tests.peers.older_spark import iceberg_rows

pytestmark = [pytest.mark.interop, pytest.mark.xdist_group("older spark")]

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string()), ("v", pa.string())])
PUBLISHED = {"bucket": "1", "metadata.iceberg.storage": "hadoop-catalog"}
VECTORS = {"metadata.iceberg.format-version": "3", "deletion-vectors.enabled": "true"}
VECTORS |= {"deletion-vectors.bitmap64": "true"}


def three_columns(*ids: int, v: str = "x") -> pa.Table:
    return pa.table({"id": ids, "p": [f"p{each % 2}" for each in ids], "v": [v] * len(ids)}, schema=SCHEMA)


def our_rows(table: FileTable, **of: str) -> list[list[object]]:
    return sorted([*row.values()] for row in table.read(**of).to_arrow().to_pylist())


def test_spark_reads_rows_history_tags_and_branches(tmp_path: Path) -> None:
    """Issue 20 point 1: appends in partitions, a compacted key table, deletion vectors, ALTER, refs, time travel."""
    catalog = FileCatalog(str(tmp_path))
    appended = catalog.create_table(
        "db.a", SCHEMA, partition_by=["p"], options={**PUBLISHED, "bucket": "-1", "write-only": "true"}
    )
    appended.write(three_columns(1, 2, 3))
    create_tag(appended.store, "eod")
    create_branch(appended.store, "dev", tag="eod")
    branch = appended.on_branch("dev")
    branch.write(three_columns(7))
    appended.write(three_columns(4))
    keyed = catalog.create_table("db.k", SCHEMA, primary_key=["id"], options=PUBLISHED)
    keyed.write(three_columns(1, 2, 3))
    keyed.write(three_columns(2, v="new"))
    keyed.compact(full=True)
    marked = catalog.create_table("db.m", SCHEMA, primary_key=["id"], options={**PUBLISHED, **VECTORS})
    marked.write(three_columns(1, 2, 3, 4))
    marked.compact(full=True)
    marked.write(three_columns(2, v="new"))
    marked.write(three_columns(3), pa.array([3], pa.int8()))
    marked.compact()
    altered = catalog.create_table("db.e", SCHEMA, options={**PUBLISHED, "bucket": "-1"})
    altered.write(three_columns(1))
    changes = [RenameColumn(("v",), "w"), AddColumn(path=("n",), type=DataType(root="INT"))]
    catalog.alter_table("db.e", changes)
    altered = catalog.table("db.e")
    altered.write(pa.table({"id": [2], "p": ["p0"], "w": ["y"], "n": pa.array([5], pa.int32())}))
    first = str(appended.store.snapshots.latest_id())
    texts = {
        "SELECT * FROM ice.db.a": our_rows(appended),
        "SELECT * FROM ice.db.a WHERE p = 'p1' AND id > 1": [[3, "p1", "x"]],
        "SELECT * FROM ice.db.a VERSION AS OF 'eod'": our_rows(appended, version="eod"),
        f"SELECT * FROM ice.db.a VERSION AS OF {first}": our_rows(appended),
        "SELECT * FROM ice.db.a.branch_dev": our_rows(branch),
        "SELECT * FROM ice.db.a VERSION AS OF 'dev'": our_rows(branch),
        "SELECT name, type FROM ice.db.a.refs": [["dev", "BRANCH"], ["eod", "TAG"], ["main", "BRANCH"]],
        "SELECT * FROM ice.db.k": our_rows(keyed),
        "SELECT * FROM ice.db.m": our_rows(marked),
        "SELECT * FROM ice.db.e ORDER BY id": [[1, "p1", "x", None], [2, "p0", "y", 5]],
    }
    found = iceberg_rows(tmp_path / "iceberg", [*texts])
    assert {text: sorted(rows, key=str) for text, rows in zip(texts, found, strict=True)} == {
        text: sorted(rows, key=str) for text, rows in texts.items()
    }
