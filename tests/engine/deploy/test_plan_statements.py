"""The statements of a plan make the table what the job file says."""

from pathlib import Path

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
