"""The statements of a plan make the table what the job file says."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.deploy.config.table_config import TableConfig
from engine.deploy.pipeline.table_changes import ensure_table, table_differences
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession


def no_spark() -> SparkSession:
    raise AssertionError("a schema change needs no Spark")


def test_run_one_after_the_other_they_leave_no_difference(tmp_path: Path) -> None:
    had = {
        "columns": {"id": "BIGINT", "v": "INT", "odd name": "INT", "must": "INT NOT NULL"},
        "primary_key": ["id"],
        "options": {"bucket": "1", "log.system": "none"},
    }
    wanted = TableConfig.model_validate(
        {
            "columns": {
                "id": "BIGINT",
                "v": {"type": "BIGINT", "comment": "it's \\ odd"},
                "odd name": "BIGINT",
                "must": "INT",
                "w": {"type": "STRING", "comment": "new"},
            },
            "primary_key": ["id"],
            "options": {"bucket": "1", "log.system": "none", "write-only": "true"},
            "comment": "it's new",
        }
    )
    catalog = Catalog(str(tmp_path))
    ensure_table(catalog, "db.t", TableConfig.model_validate(had))
    differences = table_differences("db.t", catalog.table("db.t").schema, wanted)
    session = SqlSession(SqlContext(catalog=catalog, open_spark=no_spark))
    for each in differences:
        assert each.statement is not None
        session.execute(each.statement)
    left = table_differences("db.t", catalog.table("db.t").schema, wanted)
    assert [each.fact for each in left] == []


@pytest.mark.parametrize(
    ("changes", "old_rows"),
    [
        ({"columns": {"id": "BIGINT", "v": "INT", "w": "INT"}}, "null in rows that are there"),
        ({"columns": {"id": "BIGINT", "v": "BIGINT"}}, "values that are there stay"),
        ({"columns": {"id": "BIGINT", "v": "STRING"}}, "values that are there are read as STRING: as text"),
        ({"columns": {"id": "BIGINT", "v": "DECIMAL(5, 2)"}}, "numbers beyond its precision are null"),
        ({"columns": {"id": "BIGINT", "v": "SMALLINT"}}, "nothing to do"),
        ({"options": {"bucket": "4"}}, "partitions that are there keep their buckets until CALL sys.rescale"),
        ({"options": {"bucket": "1", "ignore-delete": "true"}}, "rows that are there are read by it too"),
        ({"options": {"bucket": "1", "changelog-producer": "input"}}, "their later changes are delivered by it"),
        ({"options": {"bucket": "1", "write-only": "true"}}, "rows that are there stay"),
        ({"primary_key": ["id", "v"]}, "rows that are there keep their keys"),
    ],
    ids=str,
)
def test_each_difference_says_what_becomes_of_old_rows(
    tmp_path: Path, changes: Mapping[str, object], old_rows: str
) -> None:
    had = {"columns": {"id": "BIGINT", "v": "INT"}, "primary_key": ["id"], "options": {"bucket": "1"}}
    table = ensure_table(Catalog(str(tmp_path)), "db.t", TableConfig.model_validate(had))
    first, *_ = table_differences("db.t", table.schema, TableConfig.model_validate({**had, **changes}))
    assert first.fact.endswith(old_rows) or old_rows in first.fact.partition(", ")[2]
