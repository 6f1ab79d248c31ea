"""Frames of Spark that bring new columns: through the sink with faults, ``format("fluvial")`` and SQL."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table, sink
from engine.broker.broker import Broker
from engine.dialect.dml.dml import run_dml
from engine.dialect.grammar.parser import parse_statements
from engine.dialect.scope.context import SqlContext
from engine.runtime.steps import Step, StepEvent
from lsm.errors import InvalidInputError
from tests.support.rows import row_dicts
from tests.support.streams import query

pytestmark = [pytest.mark.spark, pytest.mark.broker]

ON = {"write.merge-schema": "true", "write.type-widening": "true"}
POINT = pa.struct([("x", pa.int32())])
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int32()), ("p", POINT), ("l", pa.list_(POINT))])
FAULTS = [Step.FILES_FLUSHED, Step.LOG_COMMITTED, Step.TASKS_DONE]


@dataclass(frozen=True)
class Dies:
    """Ends the attempt at a step, in whatever process that is."""

    step: Step

    def __call__(self, event: StepEvent) -> None:
        if event.step is self.step:
            raise RuntimeError(f"died at {event.step.value}")


def fresh_rows(table: Table) -> list[dict[str, Any]]:
    return row_dicts(Catalog(table.store.paths.root.rsplit("/", 2)[0]).table(table.name), "id")


@pytest.mark.long
def test_a_micro_batch_that_brings_columns_survives_every_step(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    """FL-86: the schema is changed before rows are written, and a replay finds it changed. A stream reads on."""
    catalog = Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": broker.bootstrap_servers})
    table = catalog.create_table("db.grows", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    options = {**ON, "write.stream.commit-user": "query", "write-only": "true"}
    stream = query(table)
    seen = []
    for batch, step in enumerate(FAULTS):
        frame = spark.sql(
            f"SELECT {batch}L AS id, {batch} AS n, named_struct('x', {batch}, 'y{batch}', 'q') AS p, "
            f"array(named_struct('z{batch}', {batch})) AS l, 'new' AS c{batch}, '+I' AS _row_kind"
        )
        with pytest.raises(Exception, match="died at"):
            sink(table, options, observe=Dies(step))(frame, batch)
        assert catalog.table("db.grows").schema.id == batch + 1
        write = sink(table, options)
        write(frame, batch)
        write(frame, batch)  # Spark did not note it
        write.close()
        seen += stream.available()
    last = len(FAULTS) - 1
    assert catalog.table("db.grows").store.schemas.ids() == list(range(last + 2))
    for batch, row in enumerate(fresh_rows(table)):
        assert (row["id"], row["n"], row["p"]["x"], row[f"c{batch}"]) == (batch, batch, batch, "new")
        assert (row["p"][f"y{batch}"], row["l"][0][f"z{batch}"], row["l"][0]["x"]) == ("q", batch, None)
        assert [row[f"c{other}"] for other in range(last + 1) if other != batch] == [None] * last
    assert [(row["id"], row["n"], row["p"]) for row in seen] == [(n, n, {"x": n}) for n in range(last + 1)]


def test_one_sink_goes_on_through_changes_of_its_frames(spark: SparkSession, tmp_path: Path) -> None:
    """Frames of one query may change where its function makes them, as one that decodes JSON does."""
    table = Catalog(str(tmp_path)).create_table("db.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    write = sink(table, {**ON, "write.stream.commit-user": "query"})
    write(spark.sql("SELECT 1L AS id, 1 AS n"), 0)
    write(spark.sql("SELECT 2L AS id, 2000000000000 AS n, 'a' AS more"), 1)
    write(spark.sql("SELECT 3L AS id, CAST(3 AS SMALLINT) AS n, map('k', 1) AS m"), 2)
    with pytest.raises(InvalidInputError, match=r"column=n type=BIGINT given=STRING .*explicit-cast=true"):
        write(spark.sql("SELECT 4L AS id, 'x' AS n"), 3)
    write.close()
    found = [(row["id"], row["n"], row["more"], row["m"]) for row in fresh_rows(table)]
    assert found == [(1, 1, None, None), (2, 2 * 10**12, "a", None), (3, 3, None, [("k", 1)])]
    fixed = sink(table, {"write.stream.commit-user": "other"})
    with pytest.raises(InvalidInputError, match="no such column: column=more"):
        fixed(spark.sql("SELECT 2L AS id, 'a' AS more"), 0)


def test_frames_statements_and_files_grow_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """``Table.append``, ``df.write``, ``writeStream``, INSERT and INSERT OVERWRITE take the same options."""
    catalog = Catalog(str(tmp_path / "warehouse"))
    table = catalog.create_table("default.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    cast = {"write.merge-schema": "true", "write.explicit-cast": "true"}
    table.append(spark.sql("SELECT 1L AS id, 'one' AS n, named_struct('x', 1.5D, 'y', 1) AS p"), options=cast)
    place = {"warehouse": str(tmp_path / "warehouse"), "table": "default.t"}
    frame = spark.sql("SELECT 2L AS id, 2 AS n, array(named_struct('y', 2)) AS l, 'two' AS a")
    frame.write.format("fluvial").mode("append").options(**place, **cast).save()
    arriving = tmp_path / "arriving"
    spark.sql("SELECT 3L AS id, DATE'2024-02-29' AS n, 3 AS b").write.parquet(str(arriving))
    stream = spark.readStream.schema("id BIGINT, n DATE, b INT").parquet(str(arriving)).writeStream.format("fluvial")
    stream = stream.options(**place, **cast).option("checkpointLocation", str(tmp_path / "checkpoint"))
    running = stream.trigger(availableNow=True).start()
    assert running.awaitTermination(60)
    context = SqlContext(catalog=catalog, open_spark=lambda: spark)

    def run(text: str) -> None:
        [statement] = parse_statements(text)
        run_dml(context, statement)

    with pytest.raises(InvalidInputError, match="c"):
        run("INSERT INTO t (id, c) VALUES (4, 'four')")
    context.settings["write.merge-schema"] = "true"
    run("INSERT INTO t (id, c) VALUES (4, 'four')")
    run("INSERT INTO t BY NAME SELECT 5L AS id, 5 AS n, 5.5 AS d")
    rows = {row["id"]: {name: value for name, value in row.items() if value is not None} for row in fresh_rows(table)}
    del rows[5]["d"]
    assert rows == {
        1: {"id": 1, "n": "one", "p": {"x": 1.5, "y": 1}},
        2: {"id": 2, "n": "2", "l": [{"x": None, "y": 2}], "a": "two"},
        3: {"id": 3, "n": "2024-02-29", "b": 3},
        4: {"id": 4, "c": "four"},
        5: {"id": 5, "n": "5"},
    }
