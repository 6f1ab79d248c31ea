"""``if_not_exists`` on a table of another shape says so; further columns of the table are no difference."""

import logging
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog

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
