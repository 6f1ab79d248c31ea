"""Rules on rows of a pipeline that runs: what is written, counted, said of the snapshot, and refused."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine.catalog import Catalog
from engine.deploy.config.job_config import JobConfig
from engine.deploy.job import run_job
from engine.runtime.expected_rows import EXPECT_KEY
from lsm.errors import FluvialError

pytestmark = pytest.mark.spark
COLUMNS = {"id": "BIGINT", "low": "INT", "high": "INT"}


ROWS = {"id": "BIGINT", "low": "INT", "_row_kind": "STRING"}
WITHOUT_HIGH = "SELECT id, low, IF(id = 3, 0, NULL) AS high, _row_kind FROM source"


def expecting_job(
    home: Path,
    expect: Mapping[str, Any],
    columns: Mapping[str, str] = ROWS,
    transform: str = WITHOUT_HIGH,
    primary_key: Sequence[str] = ("id",),
    row_counts: str = "false",
) -> JobConfig:
    pipeline = {
        "name": "p",
        "source": {
            "format": "json",
            "options": {"path": f"{home}/in"},
            "columns": columns,
        },
        "transform": transform,
        "target": "db.t",
        "expect": expect,
        "limits": {"files": 1},
        "checkpoint": f"{home}/checkpoint",
    }
    options = {"bucket": "1", "log.system": "none", "row-counts": row_counts}
    table = {"columns": COLUMNS, "primary_key": [*primary_key], "options": options}
    given = {"name": "j", "warehouse": f"{home}/w", "tables": {"db.t": table}, "pipelines": [pipeline]}
    return JobConfig.model_validate(given)


def put_changes(home: Path, name: str, *rows: tuple[int, int | None, str]) -> None:
    (home / "in").mkdir(exist_ok=True)
    texts = [json.dumps({"id": id_, "low": low, "_row_kind": kind}) for id_, low, kind in rows]
    (home / "in" / name).write_text("\n".join(texts))


def low_of(home: Path) -> dict[int, int | None]:
    return {row["id"]: row["low"] for row in Catalog(f"{home}/w").table("db.t").read().to_arrow().to_pylist()}


def test_rows_are_left_out_or_kept_and_a_batch_with_too_many_fails_until_the_rule_is_another(
    spark: SparkSession, tmp_path: Path
) -> None:
    rules = {
        "positive": {"condition": "low >= 0", "on-fail": "drop", "max-count": 1},
        "ordered": {"condition": "low <= high", "on-fail": "warn"},
    }
    put_changes(tmp_path, "1.json", (1, 10, "+I"), (2, -20, "+I"), (3, 30, "+I"), (4, None, "+I"))
    (result,) = run_job(expecting_job(tmp_path, rules), spark=spark)
    assert low_of(tmp_path) == {1: 10, 3: 30, 4: None}
    assert result.targets[0].broken_rows == {"positive": 1, "ordered": 1}
    snapshot = Catalog(f"{tmp_path}/w").table("db.t").latest_snapshot()
    assert snapshot is not None
    assert json.loads(snapshot.properties[EXPECT_KEY]) == {
        "positive": {"condition": "low >= 0", "on_fail": "drop", "rows": 1, "of": 4},
        "ordered": {"condition": "low <= high", "on_fail": "warn", "rows": 1, "of": 4},
    }
    put_changes(tmp_path, "2.json", (1, -1, "-D"), (5, -5, "+I"), (6, -6, "+I"))
    with pytest.raises(FluvialError, match=r"rule=positive .* rows=2 of=2 max-count=1 .*'id': 5, 'low': -5"):
        run_job(expecting_job(tmp_path, rules), spark=spark)
    assert low_of(tmp_path) == {1: 10, 3: 30, 4: None}
    for _ in range(2):  # the same batch, then nothing
        run_job(expecting_job(tmp_path, {"positive": {"condition": "low >= 0", "on-fail": "drop"}}), spark=spark)
        assert low_of(tmp_path) == {3: 30, 4: None}


def test_a_change_that_left_a_value_out_meets_the_rules_on_that_column_and_no_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The value is not null, it is that of the row before."""
    rules = {"known": {"condition": "HIGH IS NOT NULL", "on-fail": "drop"}, "some": {"condition": "low IS NOT NULL"}}
    columns = COLUMNS | {"_row_kind": "STRING", "_unavailable": "ARRAY<STRING>"}
    config = expecting_job(tmp_path, rules, columns, "SELECT * FROM source")
    (tmp_path / "in").mkdir()
    changes = [
        {"id": 1, "low": 1, "high": 9, "_row_kind": "+I"},
        {"id": 1, "low": 5, "_row_kind": "+U", "_unavailable": ["high"]},
        {"id": 1, "low": 6, "_row_kind": "+U", "_unavailable": []},
    ]
    for number, each in enumerate(changes):
        (tmp_path / "in" / f"{number}.json").write_text(json.dumps(each))
        (result,) = run_job(config, spark=spark)
    assert Catalog(f"{tmp_path}/w").table("db.t").read().to_arrow().to_pylist() == [{"id": 1, "low": 5, "high": 9}]
    assert result.targets[0].broken_rows == {"known": 1, "some": 0}


@pytest.mark.parametrize("keys", [["id"], []], ids=["key", "no key"])
def test_a_change_that_is_left_out_leaves_the_old_row_where_it_is(
    spark: SparkSession, tmp_path: Path, keys: list[str]
) -> None:
    """The old row was taken back, and the new one dropped: the row was lost."""
    rules = {"positive": {"condition": "low >= 0", "on-fail": "drop"}}
    config = expecting_job(tmp_path, rules, primary_key=keys, row_counts=str(not keys).lower())
    put_changes(tmp_path, "1.json", (1, 10, "+I"), (2, 20, "+I"), (4, 40, "+I"))
    run_job(config, spark=spark)
    changes = [(1, 10, "-U"), (1, 11, "+U"), (1, 11, "-U"), (1, -1, "+U"), (2, 20, "-U"), (2, 21, "+U"), (4, 40, "-D")]
    put_changes(tmp_path, "2.json", *changes)
    (result,) = run_job(config, spark=spark)
    assert low_of(tmp_path) == {1: 11, 2: 21}
    assert result.targets[0].broken_rows == {"positive": 1}


def test_a_rule_that_names_no_column_of_the_rows_is_said(spark: SparkSession, tmp_path: Path) -> None:
    put_changes(tmp_path, "1.json", (1, 10, "+I"))
    with pytest.raises(FluvialError, match="rules cannot be applied: expect='odd: nosuch > 0'"):
        run_job(expecting_job(tmp_path, {"odd": "nosuch > 0"}), spark=spark)
