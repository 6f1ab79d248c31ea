"""INSERT, DELETE, UPDATE and MERGE."""

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest

from engine import Table
from engine.broker.broker import Broker
from engine.dialect.dml.dml import run_dml
from engine.dialect.dml.insert import run_ctas
from engine.dialect.grammar.parser import parse_statements
from engine.write.batch_target import BatchTarget
from filestore.snapshot.snapshot import CHANGES_KEY
from filestore.types.data_types import DataField
from lsm.errors import ConflictError
from tests.engine.dialect.dml.conftest import KEY, Tables
from tests.support.rows import row_set

pytestmark = pytest.mark.spark

DAYS = pa.schema(
    [pa.field("day", pa.date32(), nullable=False), pa.field("hour", pa.int32(), nullable=False), ("n", pa.int64())]
)

# ---- INSERT


def test_rows_are_inserted(tables: Tables) -> None:
    """FL-28, FL-31: values, queries, column lists, names."""
    table = tables.make("t", primary_key=["id"])
    assert tables.run("INSERT INTO {t} VALUES (1, 10, 'a'), (2, NULL, 'b')") == {
        "snapshot_id": 1,
        "rows_inserted": 2,
        "rows_updated": 0,
        "rows_deleted": 0,
    }
    tables.run("INSERT INTO TABLE {t} (name, id) SELECT 'x', k FROM u WHERE k IN (3, 4)")
    tables.run("INSERT INTO {t} BY NAME SELECT 'y' AS NAME, 5 AS id")
    tables.run("WITH c AS (SELECT id + 10 AS id FROM {t} WHERE id < 2) INSERT INTO {t} (id, v) (SELECT id, 1 FROM c)")
    assert row_set(table) == {
        (1, 10, "a"),
        (2, None, "b"),
        (3, None, "x"),
        (4, None, "x"),
        (5, None, "y"),
        (11, 1, None),
    }


def test_values_are_cast_as_spark_stores_them(tables: Tables) -> None:
    table = tables.make("t", primary_key=["id"])
    tables.run("INSERT INTO {t} VALUES (1.9BD, 3L, 12)")
    tables.run("INSERT INTO {t} VALUES (CAST(2 AS TINYINT), 1e1, DATE '2024-02-29')")
    assert row_set(table) == {(1, 3, "12"), (2, 10, "2024-02-29")}
    assert "column=v" in tables.refused("INSERT INTO {t} VALUES (3, 3000000000, 'x')")
    assert "column=v given=string wanted=INT" in tables.refused("INSERT INTO {t} VALUES (3, '7', 'x')")
    assert "column=id" in tables.refused("INSERT INTO {t} VALUES (NULL, 7, 'x')")
    assert len(row_set(table)) == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("INSERT INTO {t} (v) VALUES (1)", "a NOT NULL column is left out: column=id"),
        ("INSERT INTO {t} VALUES (1, 2)", "not as many columns"),
        ("INSERT INTO {t} (id, vv) VALUES (1, 2)", "did_you_mean=v"),
        ("INSERT INTO {t} (id, ID) VALUES (1, 2)", "named twice"),
        ("INSERT INTO {t} BY NAME SELECT 1 AS id, 2 AS nam", "did_you_mean=name"),
        ("INSERT INTO {t} SELECT id, v, nme FROM {t}", "nme"),
        ("INSERT INTO {t} PARTITION (v = 1) SELECT 1, 'x'", "not a partition column: column=v"),
        (
            "INSERT INTO {t} /*+ OPTIONS('change-trakking'='false') */ VALUES (1, 2, 'x')",
            "did_you_mean=change-tracking",
        ),
        ("INSERT INTO {t}$snapshots VALUES (1)", "read only"),
        ("INSERT INTO {t} REPLACE USING (id) SELECT 1, 2, 'x'", "clause='REPLACE USING'"),
    ],
)
def test_a_wrong_insert_is_refused_and_leaves_nothing(tables: Tables, text: str, words: str) -> None:
    """FL-31."""
    table = tables.keyed()
    assert words in tables.refused(text)
    assert table.store.snapshots.latest_id() == 1


MERGE = "MERGE INTO {t} USING (SELECT 1L AS id, 7 AS v, 'x' AS name) s ON {t}.id = s.id "


@pytest.mark.parametrize(
    ("text", "clause"),
    [
        ("DELETE FROM {t} LIMIT 1", "LIMIT"),
        ("DELETE FROM {t} WHERE id > 1 ORDER BY id LIMIT 1", "ORDER"),
        ("DELETE FROM {t} RETURNING *", "RETURNING"),
        ("DELETE FROM {t} USING {u} WHERE {t}.id = {u}.id", "USING"),
        ("DELETE {t} FROM {t} WHERE id = 1", "a table before FROM"),
        ("DELETE FROM {t} TABLESAMPLE (1 ROWS)", "TABLESAMPLE"),
        ("DELETE FROM {t}, {u}", "JOIN"),
        ("DELETE FROM {t} JOIN {u} ON true WHERE true", "JOIN"),
        ("DELETE FROM {t} AS x (a, b, c) WHERE a = 1", "columns behind AS"),
        ("UPDATE {t} SET v = 1 LIMIT 1", "LIMIT"),
        ("UPDATE {t} SET v = 1 ORDER BY id", "ORDER"),
        ("UPDATE {t} SET v = 1 WHERE id = 1 RETURNING *", "RETURNING"),
        ("UPDATE {t} SET v = 1 FROM {u} WHERE {t}.id = {u}.id", "FROM"),
        ("UPDATE {t} JOIN {u} ON true SET v = 1", "JOIN"),
        ("UPDATE {t} TABLESAMPLE (1 ROWS) SET v = 1", "TABLESAMPLE"),
        ("UPDATE {t} AS x (a, b, c) SET b = 1", "columns behind AS"),
        (MERGE + "WHEN MATCHED THEN DELETE RETURNING *", "RETURNING"),
        (MERGE + "WHEN MATCHED BY SOURCE THEN DELETE", "WHEN MATCHED BY SOURCE"),
        (MERGE + "WHEN MATCHED THEN UPDATE SET * WHERE s.id = 2", "WHERE"),
        (MERGE + "WHEN MATCHED THEN UPDATE SET v = 1 WHERE s.id = 2", "WHERE"),
        (MERGE + "WHEN MATCHED THEN UPDATE SET * EXCEPT (v)", "EXCEPT"),
        (MERGE + "WHEN NOT MATCHED THEN INSERT * EXCEPT (v)", "EXCEPT"),
        (MERGE + "WHEN NOT MATCHED THEN INSERT (id) VALUES (9) WHERE false", "WHERE"),
        ("MERGE INTO {t} TABLESAMPLE (1 ROWS) USING {u} ON {t}.id = {u}.id WHEN MATCHED THEN DELETE", "TABLESAMPLE"),
        ("MERGE INTO {t} AS x (a, b, c) USING {u} ON x.a = {u}.id WHEN MATCHED THEN DELETE", "columns behind AS"),
        ("MERGE INTO {t} USING {u} USING (id) WHEN MATCHED THEN DELETE", "USING"),
        ("INSERT INTO {t} VALUES (9, 9, 'x') RETURNING *", "RETURNING"),
        ("INSERT INTO {t} SELECT 9, 9, 'x' ON CONFLICT DO NOTHING", "ON CONFLICT"),
        ("INSERT INTO {t} DEFAULT VALUES", "DEFAULT"),
        ("INSERT OR REPLACE INTO {t} SELECT 9, 9, 'x'", "OR"),
        ("INSERT INTO {t} PIVOT (sum(v) FOR id IN (1)) SELECT 9, 9, 'x'", "PIVOT"),
    ],
)
def test_a_clause_of_another_dialect_is_refused_and_never_passed_over(tables: Tables, text: str, clause: str) -> None:
    """``DELETE FROM t LIMIT 1`` deleted all rows. Spark has none of these: what it has is known by name."""
    tables.keyed("u")
    table = tables.keyed()
    assert f"clause='{clause}' fix=" in tables.refused(text)
    assert table.store.snapshots.latest_id() == 1


def test_a_delete_without_from_is_refused(tables: Tables) -> None:
    """It ended with an ``AttributeError``."""
    table = tables.keyed()
    assert "syntax error, expected FROM" in tables.refused("DELETE {t} WHERE id = 1")
    assert table.store.snapshots.latest_id() == 1


@pytest.mark.parametrize("match", ["MATCHED", "NOT MATCHED", "NOT MATCHED BY SOURCE"])
def test_only_the_last_clause_of_a_merge_has_no_condition(tables: Tables, match: str) -> None:
    """As in Spark: those behind one without would never apply."""
    table = tables.keyed()
    actions = ("INSERT *", "INSERT (id) VALUES (9)") if match == "NOT MATCHED" else ("DELETE", "UPDATE SET v = 1")
    clauses = [f"WHEN {match} AND s.id = 1 THEN {actions[0]} " if "SOURCE" not in match else ""]
    clauses += [f"WHEN {match} THEN {action} " for action in actions]
    assert f"only the last WHEN {match} has no condition" in tables.refused(MERGE + "".join(clauses))
    assert table.store.snapshots.latest_id() == 1


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO {t} SELECT value, 1, 'x' FROM ticks",
        "INSERT OVERWRITE {t} SELECT value, 1, 'x' FROM ticks",
        "MERGE INTO {t} USING ticks ON {t}.id = ticks.value WHEN MATCHED THEN DELETE",
    ],
)
def test_rows_of_a_stream_are_refused(tables: Tables, text: str) -> None:
    """FL-27: what never ends goes through writeStream; an overwrite by it would never be done."""
    table = tables.keyed()
    tables.context.spark.readStream.format("rate").load().createOrReplaceTempView("ticks")
    assert "fix=write it by foreachBatch(sink(table))" in tables.refused(text)
    assert table.store.snapshots.latest_id() == 1


def test_defaults_fill_what_is_left_out(tables: Tables) -> None:
    """Where a value is left out, and where it is null, as Java stores it."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int32()), ("at", pa.date32())])
    fields = [DataField(id=0, name="id", type=_type("BIGINT"))]
    fields += [DataField(id=1, name="v", type=_type("INT"), default_value="7")]
    fields += [DataField(id=2, name="at", type=_type("DATE"), default_value="2024-02-29")]
    table = tables.make("t", fields)
    assert table.schema.arrow_schema.names == schema.names
    tables.run("INSERT INTO {t} (id) VALUES (1)")
    tables.run("INSERT INTO {t} VALUES (2, DEFAULT, DEFAULT), (3, greatest(1, 2), NULL), (DEFAULT, 4, default)")
    day = dt.date(2024, 2, 29)
    assert row_set(table) == {(1, 7, day), (2, 7, day), (3, 2, day), (None, 4, day)}


def _type(root: str) -> Any:
    from filestore.types.data_types import parse_data_type

    return parse_data_type(root)


def test_any_changelog_is_inserted(tables: Tables) -> None:
    """FL-32."""
    table = tables.keyed()
    done = tables.run("INSERT INTO {t} (id, v, _row_kind) VALUES (1, 11, '+U'), (2, NULL, '-D'), (4, 40, '+I')")
    assert (done["rows_inserted"], done["rows_updated"], done["rows_deleted"]) == (1, 1, 1)
    assert row_set(table) == {(1, 11, None), (3, 30, "c"), (4, 40, None)}


def days(table: Table) -> set[tuple[int, int, int]]:
    return {(day.day, hour, n) for day, hour, n in row_set(table)}


@pytest.fixture
def partitioned(tables: Tables) -> Table:
    table = tables.make("t", DAYS, primary_key=["day", "hour", "n"], partition_by=["day", "hour"])
    day = [dt.date(2024, 3, each) for each in (1, 1, 2, 2)]
    table.write(pa.table({"day": day, "hour": [1, 2, 1, 2], "n": [1, 2, 3, 4]}, schema=DAYS))
    return table


def test_partitions_are_filled_and_overwritten(tables: Tables, partitioned: Table) -> None:
    """FL-29, FL-30: static and dynamic partitions."""
    tables.run("INSERT INTO {t} PARTITION (day = '2024-03-01', hour) VALUES (3, 5)")
    tables.run("INSERT INTO {t} PARTITION (day = DATE '2024-03-01', hour = 3) (n) SELECT k FROM u WHERE k = 6")
    kept = {(2, 1, 3), (2, 2, 4)}
    assert days(partitioned) == kept | {(1, 1, 1), (1, 2, 2), (1, 3, 5), (1, 3, 6)}
    tables.run("INSERT OVERWRITE {t} PARTITION (day = '2024-03-01', hour = 3) SELECT 7L")
    assert days(partitioned) == kept | {(1, 1, 1), (1, 2, 2), (1, 3, 7)}
    tables.run("INSERT OVERWRITE {t} PARTITION (day = '2024-03-01', hour) VALUES (1, 8), (4, 9)")
    assert days(partitioned) == kept | {(1, 1, 8), (1, 4, 9)}
    tables.run("INSERT OVERWRITE {t} SELECT day, hour, n * 10 FROM {t} WHERE hour = 1")
    assert days(partitioned) == {(2, 1, 30), (2, 2, 4), (1, 1, 80), (1, 4, 9)}
    hint = "/*+ OPTIONS('dynamic-partition-overwrite'='false') */"
    tables.run(f"INSERT OVERWRITE {{t}} {hint} VALUES (DATE '2024-03-05', 5, 5)")
    assert days(partitioned) == {(5, 5, 5)}
    assert "not a value of the partition column" in tables.refused(
        "INSERT INTO {t} PARTITION (day = 'x', hour) VALUES (1, 1)"
    )
    assert "PARTITION already" in tables.refused(
        "INSERT INTO {t} PARTITION (hour = 1) BY NAME SELECT 1 AS hour, 1 AS n"
    )


def test_an_overwrite_of_a_table_without_partitions_replaces_it(tables: Tables) -> None:
    """FL-29."""
    table = tables.keyed()
    assert tables.run("INSERT OVERWRITE {t} SELECT id + 1, v, name FROM {t} WHERE id > 1")["rows_inserted"] == 2
    assert row_set(table) == {(3, 20, "b"), (4, 30, "c")}


@pytest.mark.broker
def test_a_write_may_hide_its_changes_from_streams(tables: Tables, broker: Broker) -> None:
    """FL-33, FL-34: tracked by default; the hint, or a setting of the session, says otherwise for one write."""
    table = tables.keyed(**{"log.kafka.bootstrap.servers": broker.bootstrap_servers})
    ends = dict(table.log_end_offsets())
    said = []
    for text in (
        "INSERT INTO {t} /*+ OPTIONS('change-tracking'='false') */ VALUES (4, 40, 'd')",
        "DELETE FROM {t} /*+ OPTIONS('change-tracking'='false') */ WHERE id = 1",
        "UPDATE {t} SET v = 1 WHERE id = 2",
        "INSERT OVERWRITE {t} SELECT * FROM {t}",
    ):
        tables.run(text)
        snapshot = table.latest_snapshot()
        assert snapshot is not None
        said.append((snapshot.properties[CHANGES_KEY], dict(table.log_end_offsets()) == ends))
    assert said == [("none", True), ("none", True), ("log", False), ("files", False)]
    tables.context.settings["change-tracking"] = "false"
    tables.run("INSERT INTO {t} VALUES (5, 50, 'e')")
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.properties[CHANGES_KEY] == "none"
    assert row_set(table) == {(2, 1, "b"), (3, 30, "c"), (4, 40, "d"), (5, 50, "e")}


def test_a_table_made_for_a_query_is_filled(tables: Tables) -> None:
    table = tables.make("t", primary_key=["id"])
    (statement,) = parse_statements("SELECT k, v, label FROM u WHERE k < 2")
    assert run_ctas(tables.context, statement, table.name).column("rows_inserted").to_pylist() == [2]
    assert row_set(table) == {(0, 0, "l0"), (1, None, "l1")}


def test_a_table_of_spark_is_written_from_ours(tables: Tables) -> None:
    spark = tables.context.spark
    spark.sql("CREATE TABLE spark_side (n BIGINT) USING parquet")
    try:
        (statement,) = parse_statements("INSERT INTO spark_side SELECT count(*) FROM u")
        assert run_dml(tables.context, statement).num_rows == 0
        assert [tuple(row) for row in spark.table("spark_side").collect()] == [(30,)]
    finally:
        spark.sql("DROP TABLE spark_side")


# ---- DELETE, UPDATE


def test_rows_are_deleted(tables: Tables) -> None:
    """FL-104: by any condition that Spark understands."""
    table = tables.keyed()
    assert (
        tables.run("DELETE FROM {t} AS x WHERE x.v > 10 AND x.id IN (SELECT k FROM u WHERE k < 3)")["rows_deleted"] == 1
    )
    assert row_set(table) == {(1, 10, "a"), (3, 30, "c")}
    assert tables.run("DELETE FROM {t} WHERE v IS NULL")["rows_deleted"] == 0
    tables.run("DELETE FROM {t}")
    assert row_set(table) == set()


def test_whole_partitions_are_deleted_without_reading_them(tables: Tables, partitioned: Table) -> None:
    """FL-103, FL-104."""
    assert "rows_deleted" not in tables.run("DELETE FROM {t} WHERE day = '2024-03-01' AND {t}.hour = 1")
    assert days(partitioned) == {(1, 2, 2), (2, 1, 3), (2, 2, 4)}
    assert tables.run("DELETE FROM {t} WHERE day = '2024-03-02' AND n > 3")["rows_deleted"] == 1
    assert days(partitioned) == {(1, 2, 2), (2, 1, 3)}
    plain = tables.make("plain", DAYS, partition_by=["day"])
    plain.write(pa.table({"day": [1, 2], "hour": [1, 1], "n": [1, 2]}, schema=DAYS))
    assert "only tables with a primary key" in tables.refused("DELETE FROM {plain} WHERE n = 1")
    tables.run("DELETE FROM {plain} WHERE day = DATE '1970-01-02'")
    assert len(row_set(plain)) == 1


def test_rows_are_updated(tables: Tables) -> None:
    table = tables.keyed()
    done = tables.run("UPDATE {t} SET v = v + (SELECT max(v) FROM u), name = concat(name, ',', 'WHERE') WHERE id < 3")
    assert done["rows_updated"] == 2
    assert row_set(table) == {(1, 15, "a,WHERE"), (2, 25, "b,WHERE"), (3, 30, "c")}
    tables.run("UPDATE {t} AS x SET x.v = DEFAULT, name = CASE WHEN x.v > 20 THEN 'big' ELSE 'small' END")
    assert row_set(table) == {(1, None, "small"), (2, None, "big"), (3, None, "big")}


def test_fields_inside_a_row_are_updated(tables: Tables) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("s", pa.struct([("a", pa.int64()), ("b", pa.string())]))]
    )
    table = tables.make("t", schema, primary_key=["id"])
    table.write(pa.table({"id": [1], "s": [{"a": 1, "b": "x"}]}, schema=schema))
    tables.run("UPDATE {t} SET s.a = id + 4, s.b = upper(s.b)")
    assert table.read().to_arrow().to_pylist() == [{"id": 1, "s": {"a": 5, "b": "X"}}]
    assert "no such field: column=s.c fields=['a', 'b']" in tables.refused("UPDATE {t} SET s.c = 1")
    assert "no such field: column=s.a.z fields=[]" in tables.refused("UPDATE {t} SET s.a.z = 1")


@pytest.mark.parametrize("is_keyed", [True, False])
def test_a_field_of_a_null_row_is_updated(tables: Tables, is_keyed: bool) -> None:
    """The row becomes one whose other fields are null, as in Spark's own plans; a null makes a row of nulls."""
    inner = pa.struct([("z", pa.int64()), ("w", pa.string())])
    row = pa.struct([("a", pa.int64()), ("b", pa.string()), ("i", inner)])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=not is_keyed), ("s", row)])
    options = {"deletion-vectors.enabled": "true"}
    table = tables.make("t", schema, primary_key=["id"] if is_keyed else [], options=options)
    table.write(pa.table({"id": [1, 2, 3], "s": [None, {"a": 1}, None]}, schema=schema))
    tables.run("UPDATE {t} SET s.a = 5 WHERE id = 1")
    tables.run("UPDATE {t} SET s.i.z = 9, s.B = 'x' WHERE id = 2")
    tables.run("UPDATE {t} SET s.i.w = NULL WHERE id = 3")
    found = {each["id"]: each["s"] for each in table.read().to_arrow().to_pylist()}
    assert found == {
        1: {"a": 5, "b": None, "i": None},
        2: {"a": 1, "b": "x", "i": {"z": 9, "w": None}},
        3: {"a": None, "b": None, "i": {"z": None, "w": None}},
    }


@pytest.mark.parametrize(
    ("options", "text", "words"),
    [
        ({}, "UPDATE {t} SET id = 4", "a row keeps its primary key: column=id"),
        ({}, "UPDATE {t} SET nam = 'x'", "did_you_mean=name"),
        ({}, "UPDATE {t} SET v = 1, V = 2", "assigned twice"),
        ({}, "UPDATE {t} SET v.x = 1, v = 2", "assigned twice"),
        (
            {},
            "MERGE INTO {t} USING (SELECT 1 AS k) s ON {t}.id = k WHEN MATCHED THEN UPDATE SET v = 1, V.x.y = 2",
            "assigned twice",
        ),
        ({}, "UPDATE {t} SET v = 'x'", "column=v given=string"),
        ({}, "UPDATE {t} SET v = 3000000000 WHERE id = 1", "value does not fit the column: column=v"),
        ({}, "UPDATE {t} SET v = nope + 1", "near='nope'"),
        ({"merge-engine": "partial-update"}, "UPDATE {t} SET v = 1", "merge-engine=partial-update"),
        ({"merge-engine": "first-row"}, "DELETE FROM {t} WHERE id = 1", "merge-engine=first-row"),
        ({"ignore-delete": "true"}, "DELETE FROM {t} WHERE id = 1", "ignore-delete=true"),
    ],
)
def test_a_wrong_change_is_refused_and_leaves_nothing(
    tables: Tables, options: dict[str, str], text: str, words: str
) -> None:
    table = tables.keyed(**options)
    assert words in tables.refused(text)
    assert table.store.snapshots.latest_id() == 1


def test_an_update_tells_streams_what_was_before(tables: Tables) -> None:
    """FL-32: with log.changelog-mode=all both images are written, the old one first."""
    table = tables.make("t", primary_key=["id"], options={"log.changelog-mode": "all", "changelog-producer": "input"})
    table.write(pa.table({"id": [1], "v": [10], "name": ["a"]}, schema=KEY))
    tables.run("UPDATE {t} SET v = 11")
    assert row_set(table) == {(1, 11, "a")}
    snapshot = table.latest_snapshot()
    assert snapshot is not None
    assert snapshot.changelog_record_count == 2


def test_a_change_that_was_overtaken_is_computed_again(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer commits the same bucket while Spark computes: its value is not lost."""
    table = tables.keyed()
    others = iter([(1, 100), (2, 200)])
    append = BatchTarget.append

    def slow(self: BatchTarget, *arguments: Any, **named: Any) -> Any:
        for each in others:
            table.write(pa.table({"id": [each[0]], "v": [each[1]], "name": ["other"]}, schema=KEY))
            break
        return append(self, *arguments, **named)

    monkeypatch.setattr(BatchTarget, "append", slow)
    tables.run("UPDATE {t} SET v = v + 1")
    assert row_set(table) == {(1, 101, "other"), (2, 201, "other"), (3, 31, "c")}


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO {t} VALUES (4, 40, 'd')",
        "UPDATE {t} SET v = 0",
        "DELETE FROM {t} WHERE id = 1",
        "MERGE INTO {t} USING (SELECT 4 AS k) ON {t}.id = k WHEN NOT MATCHED THEN INSERT (id) VALUES (k)",
        "INSERT INTO {t} REPLACE WHERE id = 1 VALUES (1, 0, 'a')",
    ],
)
def test_a_statement_appends_as_python_does(tables: Tables, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """There is one way to add rows: what is refused, merged or noted there is so in statements too."""
    tables.keyed()
    append, seen = Table.append, []

    def noting(self: Table, *arguments: Any, **named: Any) -> Any:
        seen.append(self.name)
        return append(self, *arguments, **named)

    monkeypatch.setattr(Table, "append", noting)
    tables.run(text)
    assert len(seen) == 1


def test_a_change_that_is_overtaken_for_ever_is_given_up(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    from engine.write import batch_writer

    table = tables.keyed()
    commit = batch_writer.TableCommit.commit

    def late(self: Any, committable: Any) -> Any:
        monkeypatch.setattr(batch_writer.TableCommit, "commit", commit)
        table.write(pa.table({"id": [1], "v": [0], "name": ["other"]}, schema=KEY))
        monkeypatch.setattr(batch_writer.TableCommit, "commit", late)
        return commit(self, committable)

    monkeypatch.setattr(batch_writer.TableCommit, "commit", late)
    with pytest.raises(ConflictError):
        tables.run("DELETE FROM {t} WHERE id < 3")
    monkeypatch.undo()
    assert row_set(table) == {(1, 0, "other"), (2, 20, "b"), (3, 30, "c")}


# ---- MERGE


def test_a_merge_updates_deletes_and_inserts(tables: Tables) -> None:
    table = tables.keyed()
    done = tables.run(
        """MERGE INTO {t} AS a USING (SELECT k AS id, v, label AS name FROM u WHERE k BETWEEN 2 AND 5) b ON a.id = b.id
        WHEN MATCHED AND b.id = 2 THEN DELETE
        WHEN MATCHED AND CASE WHEN b.v > 0 THEN true ELSE false END THEN UPDATE SET a.v = a.v + b.v, name = 'merged'
        WHEN NOT MATCHED AND b.id = 4 THEN INSERT (id, name) VALUES (b.id, upper(b.name))
        WHEN NOT MATCHED BY TARGET AND b.id = 5 THEN INSERT *
        WHEN NOT MATCHED BY SOURCE AND a.v = 10 THEN UPDATE SET name = 'alone'"""
    )
    assert (done["rows_inserted"], done["rows_updated"], done["rows_deleted"]) == (2, 2, 1)
    assert row_set(table) == {(1, 10, "alone"), (3, 33, "merged"), (4, None, "L1"), (5, None, "l2")}


@pytest.mark.parametrize(
    ("clauses", "expected"),
    [
        ("WHEN MATCHED THEN UPDATE SET *", {(1, 10, "a"), (2, 0, "y"), (3, 0, "x")}),
        ("WHEN MATCHED THEN DELETE", {(1, 10, "a")}),
        ("WHEN NOT MATCHED THEN INSERT *", {(1, 10, "a"), (2, 20, "b"), (3, 30, "c"), (9, 0, "z")}),
        ("WHEN NOT MATCHED BY SOURCE THEN DELETE", {(2, 20, "b"), (3, 30, "c")}),
        ("WHEN MATCHED THEN UPDATE * WHEN NOT MATCHED BY SOURCE THEN DELETE", {(2, 0, "y"), (3, 0, "x")}),
        ("WHEN MATCHED AND s.id > 5 THEN DELETE", {(1, 10, "a"), (2, 20, "b"), (3, 30, "c")}),
        ("WHEN MATCHED AND s.id = 2 THEN UPDATE SET v = 1 / (s.id - 2 + s.v)", None),
        ("WHEN MATCHED AND s.id > 2 THEN UPDATE SET v = 6 / (s.id - 2)", {(1, 10, "a"), (2, 20, "b"), (3, 6, "c")}),
    ],
)
def test_each_clause_of_a_merge(tables: Tables, clauses: str, expected: set[Any] | None) -> None:
    """Values are computed for the rows of their clause only: others may not be divided by."""
    table = tables.keyed()
    source = tables.make("s")
    source.write(pa.table({"id": [2, 3, 9], "v": [0, 0, 0], "name": ["y", "x", "z"]}, schema=KEY))
    text = f"MERGE INTO {{t}} USING {{s}} AS s ON {{t}}.id = s.id {clauses}"
    if expected is None:
        with pytest.raises(Exception, match="DIVIDE_BY_ZERO"):
            tables.run(text)
    else:
        tables.run(text)
    assert row_set(table) == (expected or {(1, 10, "a"), (2, 20, "b"), (3, 30, "c")})


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("source", "clauses", "words"),
    [
        ("(SELECT 1 AS id, explode(array(1, 2)) AS v)", "WHEN MATCHED THEN UPDATE SET v = s.v", 'key={"id":1}'),
        (
            "(SELECT 7 AS id, explode(array(1, 2)) AS v)",
            "WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)",
            'key={"id":7}',
        ),
        ("(SELECT 1L AS id, 2 AS v)", "WHEN MATCHED THEN UPDATE SET *", "no column for UPDATE *: column=name"),
        (
            "(SELECT 1L AS id, 2 AS v)",
            "WHEN NOT MATCHED THEN INSERT (v) VALUES (s.v)",
            "NOT NULL column is left out: column=id",
        ),
        (
            "(SELECT 1L AS id, 2 AS v)",
            "WHEN MATCHED THEN UPDATE SET id = s.id + 1",
            "a row keeps its key and partition: column=id old=1 new=2",
        ),
        ("(SELECT 1L AS id, 2 AS v)", "WHEN MATCHED THEN UPDATE SET v = s.nope", "near='s.nope'"),
        ("(SELECT 1L AS id, 2 AS v)", "WHEN MATCHED THEN INSERT *", "WHEN MATCHED takes UPDATE or DELETE"),
        ("(SELECT 1L AS id, 2 AS v)", "WHEN MATCHED THEN UPDATE SET v = 'x'", "column=v given=string"),
    ],
)
def test_a_wrong_merge_is_refused_and_leaves_nothing(tables: Tables, source: str, clauses: str, words: str) -> None:
    table = tables.keyed()
    assert words in tables.refused(f"MERGE INTO {{t}} t USING {source} s ON t.id = s.id {clauses}")
    assert table.store.snapshots.latest_id() == 1


def test_a_merge_that_deletes_nothing_changes_a_table_that_ignores_deletes(tables: Tables) -> None:
    """As an UPDATE does."""
    table = tables.keyed(**{"ignore-delete": "true"})
    merge = "MERGE INTO {t} t USING (SELECT 2L AS id, 5 AS v) s ON t.id = s.id"
    tables.run(f"{merge} WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, v) VALUES (s.id, s.v)")
    assert row_set(table) == {(1, 10, "a"), (2, 5, "b"), (3, 30, "c")}
    for clauses in (
        "WHEN MATCHED THEN DELETE",
        "WHEN MATCHED THEN UPDATE SET v = 1 WHEN NOT MATCHED BY SOURCE THEN DELETE",
    ):
        assert "the table ignores deletes: statement=MERGE" in tables.refused(f"{merge} {clauses}")
    assert table.store.snapshots.latest_id() == 2


def test_a_key_that_stays_may_be_assigned(tables: Tables) -> None:
    table = tables.keyed()
    tables.run("MERGE INTO {t} t USING u ON t.id = u.k AND u.k = 2 WHEN MATCHED THEN UPDATE SET id = k, v = 5")
    assert row_set(table) == {(1, 10, "a"), (2, 5, "b"), (3, 30, "c")}


# ---- deletion vectors


def test_rows_without_a_key_are_marked_where_they_are(tables: Tables) -> None:
    """FL-103: DELETE and UPDATE of a table without a key; files stay, one commit each."""
    table = tables.make("t", options={"deletion-vectors.enabled": "true"})
    for start in (0, 3):
        ids = [start, start + 1, start + 2]
        table.write(pa.table({"id": ids, "v": [each * 10 for each in ids], "name": ["a"] * 3}, schema=KEY))
    done = tables.run("DELETE FROM {t} AS x WHERE x.id IN (SELECT k FROM u WHERE k = 1) OR x.v = 50")
    assert done == {"snapshot_id": 3, "rows_deleted": 2}
    assert row_set(table) == {(0, 0, "a"), (2, 20, "a"), (3, 30, "a"), (4, 40, "a")}
    done = tables.run("UPDATE {t} SET v = v + (SELECT max(v) FROM {t}), name = 'b' WHERE id >= 3")
    assert done == {"snapshot_id": 4, "rows_updated": 2}
    assert row_set(table) == {(0, 0, "a"), (2, 20, "a"), (3, 70, "b"), (4, 80, "b")}
    assert tables.run("DELETE FROM {t} WHERE id > 100")["rows_deleted"] == 0
    spark = tables.context.spark
    found = table.dataframe(spark, filter="id > 0").select("id", "v").collect()
    assert {tuple(each) for each in found} == {(2, 20), (3, 70), (4, 80)}
    assert table.dataframe(spark).count() == 4
    assert "MERGE" in tables.refused("MERGE INTO {t} USING u ON {t}.id = u.k WHEN MATCHED THEN DELETE")
    table.compact(full=True)
    assert row_set(table) == {(0, 0, "a"), (2, 20, "a"), (3, 70, "b"), (4, 80, "b")}


def test_statements_see_what_they_wrote_into_a_table_with_deletion_vectors(tables: Tables) -> None:
    """FL-28: rows are seen behind each statement, and Spark scans files without marks itself."""
    table = tables.keyed(**{"deletion-vectors.enabled": "true"})
    spark = tables.context.spark
    tables.run("INSERT INTO {t} SELECT id, CAST(id AS INT), 'x' FROM range(100, 3000)")
    assert table.dataframe(spark).count() == 2903
    tables.run("UPDATE {t} SET v = -1 WHERE id = 100 OR id = 2")
    tables.run("DELETE FROM {t} WHERE id = 101 OR id = 1")
    frame = table.dataframe(spark)
    assert frame.count() == 2901
    assert {each.id for each in frame.filter("v = -1").collect()} == {2, 100}
    assert not any(split.needs_merge for split in table.read().plan().splits)
    table.append(frame.limit(10))
    assert table.dataframe(spark).count() == 2901
