"""``if_not_exists`` on a table of another shape says so; further columns of the table are no difference."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, sql

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32())])
SAME: dict[str, Any] = {"primary_key": ["id"], "options": {"bucket": "2"}}


@pytest.mark.parametrize(
    ("schema", "given", "words"),
    [
        (SCHEMA, SAME, ""),
        (pa.schema([("id", pa.int64())]), SAME, ""),
        (SCHEMA, {"options": {"bucket": "2", "primary-key": "id"}}, ""),
        (pa.schema([("id", pa.string()), ("n", pa.int32())]), SAME, "column=id table_has=BIGINT wanted=STRING"),
        (SCHEMA.append(pa.field("w", pa.string())), SAME, "column=w table_has=no such column wanted=STRING"),
        (SCHEMA, {"primary_key": ["n"]}, "primary_key table_has=['id'] wanted=['n']"),
        (SCHEMA, {}, "primary_key table_has=['id'] wanted=[]"),
        (SCHEMA, SAME | {"partition_by": ["id"]}, "partition_by table_has=[] wanted=['id']"),
        (SCHEMA, SAME | {"options": {"bucket": "4"}}, "option=bucket table_has=2 wanted=4"),
        (SCHEMA, SAME | {"options": {"bucket": "2", "merge-engine": "deduplicate"}}, ""),
        (
            SCHEMA,
            SAME | {"options": {"merge-engine": "first-row"}},
            "merge-engine table_has=its default wanted=",
        ),
        (SCHEMA, SAME | {"options": {"write-only": "TRUE"}}, "option=write-only table_has=its default wanted=TRUE"),
    ],
)
def test_another_shape_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, schema: pa.Schema, given: dict[str, Any], words: str
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("db.t", SCHEMA, **SAME)
    with caplog.at_level(logging.WARNING):
        table = catalog.create_table("db.t", schema, **given, if_not_exists=True)
    assert table.schema.column_names == ("id", "n")
    assert ("the table exists with another shape" in caplog.text) == bool(words)
    assert words in caplog.text


@pytest.mark.parametrize(
    ("columns", "rest", "words"),
    [
        ("ID BIGINT PRIMARY KEY NOT ENFORCED, n INT", "WITH ('bucket' = '2')", ""),
        ("id BIGINT PRIMARY KEY NOT ENFORCED, n INT", "", ""),
        ("id BIGINT, n INT", "TBLPROPERTIES ('primary-key' = 'id', 'bucket' = '2')", ""),
        ("id BIGINT, n STRING", "TBLPROPERTIES ('primary-key' = 'id')", "column=n table_has=INT wanted=STRING"),
        ("id BIGINT, n INT", "", "primary_key table_has=['id'] wanted=[]"),
        ("id BIGINT, n INT", "TBLPROPERTIES ('primary-key' = 'id', 'write-only' = 'true')", "option=write-only"),
    ],
)
def test_a_statement_names_it_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, columns: str, rest: str, words: str
) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_table("db.t", SCHEMA, **SAME)
    with caplog.at_level(logging.WARNING):
        sql(None, f"CREATE TABLE IF NOT EXISTS db.t ({columns}) {rest}", catalog)
    assert ("the table exists with another shape" in caplog.text) == bool(words)
    assert words in caplog.text
