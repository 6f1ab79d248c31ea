"""Partitions that a branch lacks come from the branch that it falls back to, or a primary branch comes first."""

import random
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog, Table
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.procedures import create_tag
from filestore.branch.branches import create_branch, delete_branch
from filestore.evolution.schema_change import AddColumn, RemoveOption, SetOption
from filestore.types.data_types import DataType
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([pa.field("dt", pa.string(), nullable=False), pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])  # fmt: skip  # noqa: E501
KEY = "scan.fallback-branch"
PRIMARY = "scan.primary-branch"


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """A partitioned table db.t, empty, with an empty branch ``raw`` that it falls back to."""
    made = Catalog(str(tmp_path / "warehouse"))
    made.create_table("db.t", SCHEMA, primary_key=["dt", "id"], partition_by=["dt"])
    create_branch(made.table("db.t").store, "raw")
    made.alter_table("db.t", [SetOption(KEY, "raw")])
    return made


def day_rows(dt: str, *ids: int, v: str = "x") -> pa.Table:
    return pa.table({"dt": [dt] * len(ids), "id": ids, "v": [v] * len(ids)})


def found(table: Table, **travel: object) -> dict[tuple[str, int], str]:
    return {(row["dt"], row["id"]): row["v"] for row in table.read(**travel).to_arrow().to_pylist()}  # type: ignore[arg-type]


def test_a_partition_comes_from_the_branch_that_has_it_its_own_first(catalog: Catalog) -> None:
    """Paimon's scan.fallback-branch: whole partitions, whatever the filter leaves of them."""
    main, raw = catalog.table("db.t"), catalog.table("db.t$branch_raw")
    assert found(main) == {}
    raw.write(day_rows("d1", 1, 2, v="raw"))
    raw.write(day_rows("d2", 1, v="raw"))
    assert found(main) == {("d1", 1): "raw", ("d1", 2): "raw", ("d2", 1): "raw"}
    main.write(day_rows("d1", 1, v="own"))
    assert found(main) == {("d1", 1): "own", ("d2", 1): "raw"}
    assert main.read().to_arrow(filter="id = 2").num_rows == 0  # d1 is there: its row 2 is not
    assert main.read().to_arrow(filter="dt = 'd2'").num_rows == 1
    assert main.read().describe().endswith("fallback_branch=raw fallback_snapshot=2")
    assert found(raw) == {("d1", 1): "raw", ("d1", 2): "raw", ("d2", 1): "raw"}
    assert found(main, options={KEY: "main"}) == {("d1", 1): "own"}
    assert main.files.read().to_arrow().num_rows == 1  # what writes and streams are made of


def test_travel_takes_the_branch_as_it_was_then(catalog: Catalog) -> None:
    """BR-24."""
    main, raw = catalog.table("db.t"), catalog.table("db.t$branch_raw")
    raw.write(day_rows("d2", 1, v="raw"))
    main.write(day_rows("d1", 1, v="own"))
    create_tag(main, "then")
    raw.write(day_rows("d3", 1, v="raw"))
    main.write(day_rows("d2", 9, v="own"))
    then = {("d1", 1): "own", ("d2", 1): "raw"}
    assert found(main, tag="then") == found(main, snapshot_id=1) == then
    snapshot = main.store.snapshots.read(1)
    assert found(main, timestamp=snapshot.time_ms) == then
    assert found(main) == {("d1", 1): "own", ("d2", 9): "own", ("d3", 1): "raw"}


def test_a_branch_that_does_not_fit_is_refused(catalog: Catalog) -> None:
    """Source: Paimon FallbackReadFileStoreTable.validateSchema."""
    main = catalog.table("db.t")
    for key in (KEY, PRIMARY):
        with pytest.raises(InvalidInputError, match=r"no such branch: .*branch=nope branches=\['main', 'raw'\]"):
            main.read(options={KEY: "main", key: "nope"})
        with pytest.raises(InvalidInputError, match=f"no such branch: table=db.t {key}=nope fix=create the branch"):
            catalog.alter_table("db.t", [SetOption(key, "nope")])
        with pytest.raises(InvalidInputError, match=f"a new table has no branches: table=db.u {key}=raw"):
            catalog.create_table("db.u", SCHEMA, options={key: "raw"})
    with pytest.raises(InvalidInputError, match=f"partitions come from one other branch: .*{KEY}=raw {PRIMARY}=raw"):
        main.read(options={PRIMARY: "raw"})
    catalog.alter_table("db.t$branch_raw", [AddColumn(path=("w",), type=DataType(root="INT"))])
    with pytest.raises(InvalidInputError, match=r"a branch to fall back to has the table's columns: .*branch=raw"):
        main.read()
    catalog.alter_table("db.t", [AddColumn(path=("w",), type=DataType(root="INT"))])
    catalog.table("db.t").read()


def test_partitions_of_a_primary_branch_come_first(catalog: Catalog) -> None:
    """Paimon's scan.primary-branch: what the table's own branch has of such a partition is not read."""
    catalog.alter_table("db.t", [RemoveOption(KEY), SetOption(PRIMARY, "raw")])
    main, raw = catalog.table("db.t"), catalog.table("db.t$branch_raw")
    main.write(day_rows("x", 1, 2, v="main"))
    main.write(day_rows("z", 1, v="main"))
    assert found(main) == {("x", 1): "main", ("x", 2): "main", ("z", 1): "main"}
    create_tag(main, "then")
    raw.write(day_rows("x", 2, v="branch"))
    assert found(main) == {("x", 2): "branch", ("z", 1): "main"}
    assert main.read().to_arrow(filter="v = 'main'").num_rows == 1
    assert main.read().to_arrow(filter="id = 1").to_pylist() == [{"dt": "z", "id": 1, "v": "main"}]
    assert main.read().describe().endswith("primary_branch=raw primary_snapshot=1")
    assert found(main, tag="then") == {("x", 1): "main", ("x", 2): "main", ("z", 1): "main"}
    assert found(main, options={PRIMARY: "main"}) == {("x", 1): "main", ("x", 2): "main", ("z", 1): "main"}
    assert found(raw) == {("x", 2): "branch"}
    with pytest.raises(InvalidInputError, match=f"batch reads take partitions from this branch: .*option={PRIMARY}"):
        delete_branch(main.store, "raw")


@pytest.mark.parametrize("key", [KEY, PRIMARY])
@pytest.mark.parametrize("state", ["scan.snapshot-id", "scan.timestamp", "scan.tag-name"])
def test_a_stored_state_of_one_of_both_branches_is_refused(key: str, state: str, catalog: Catalog) -> None:
    """Paimon reads the other branch as it is now beside the older state of the table; here it was as of then."""
    main, raw = catalog.table("db.t"), catalog.table("db.t$branch_raw")
    main.write(day_rows("d1", 1, v="own"))
    raw.write(day_rows("d2", 1, v="raw"))
    create_tag(main, "then")
    create_tag(raw, "then")
    text = {"scan.snapshot-id": "1", "scan.tag-name": "then"}.get(state, "2999-01-01")
    catalog.alter_table("db.t", [RemoveOption(KEY), SetOption(key, "raw")])
    for name in ("db.t", "db.t$branch_raw"):
        catalog.alter_table(name, [SetOption(state, text)])
        says = rf"table=\S*{re.escape(name)} option={re.escape(state)} value={text} {key}=raw fix='reset it"
        with pytest.raises(InvalidInputError, match=says):
            catalog.table("db.t").read()
        if name == "db.t":
            both = {("d1", 1): "own", ("d2", 1): "raw"}
            assert found(catalog.table("db.t"), options={"scan.mode": "latest"}) == both
        catalog.alter_table(name, [RemoveOption(state)])
    assert found(catalog.table("db.t")) == both


@pytest.mark.parametrize("key", [KEY, PRIMARY])
@pytest.mark.sweep
def test_any_history_reads_as_a_dumb_oracle_says(key: str, catalog: Catalog) -> None:
    """Writes, deletes, overwrites and compactions on both sides; filters on partition, key and value."""
    catalog.alter_table("db.t", [RemoveOption(KEY), SetOption(key, "raw")])
    world = random.Random(7)
    tables = {"own": catalog.table("db.t"), "raw": catalog.table("db.t$branch_raw")}
    state: dict[str, dict[str, dict[int, str]]] = {"own": {}, "raw": {}}
    for step in range(40):
        side, dt = world.choice(["own", "raw"]), f"d{world.randrange(4)}"
        table, mine = tables[side], state[side]
        ids = world.sample(range(5), world.randint(1, 3))
        match world.randrange(4):
            case 0:
                table.overwrite(day_rows(dt, *ids, v=f"{side}{step}"))
                mine[dt] = dict.fromkeys(ids, f"{side}{step}")
            case 1:
                table.compact(full=True)
            case _:
                table.write(day_rows(dt, *ids, v=f"{side}{step}"))
                mine.setdefault(dt, {}).update(dict.fromkeys(ids, f"{side}{step}"))
        merged = {**state["raw"], **state["own"]} if key == KEY else {**state["own"], **state["raw"]}
        expected = {(dt, id): v for dt, part in merged.items() for id, v in part.items()}
        assert found(tables["own"]) == expected
        keys = {
            (row["dt"], row["id"]) for row in tables["own"].read().to_arrow(filter="id > 2 OR dt = 'd1'").to_pylist()
        }
        assert keys == {(dt, id) for dt, id in expected if id > 2 or dt == "d1"}


@pytest.mark.spark
def test_sql_and_frames_fall_back_and_say_so(spark: SparkSession, catalog: Catalog) -> None:
    """Both parts are scanned by Spark itself where they can be; changes of rows are the table's own."""
    main, raw = catalog.table("db.t"), catalog.table("db.t$branch_raw")
    raw.write(day_rows("d2", 1, 2, v="raw"))
    raw.compact(full=True)
    main.write(day_rows("d1", 1, v="own"))
    place = {"warehouse": catalog.warehouse, "table": "db.t"}
    assert spark.read.format("fluvial").options(**place).load().filter("v = 'raw'").count() == 2
    session = SqlSession(SqlContext(catalog=catalog, open_spark=spark.newSession, database="db"))

    def run(text: str) -> list[dict[str, object]]:
        result = session.execute(text)[-1]
        table = result.table if result.frame is None else result.frame.toArrow()
        assert table is not None
        return [dict(row) for row in table.to_pylist()]

    [plan] = run("EXPLAIN SELECT * FROM t")
    assert "from branch raw at snapshot 2: 1 partitions, 1 files" in str(plan["plan"])
    assert run("UPDATE t SET v = 'new' WHERE true")[0]["rows_updated"] == 1
    raw.write(day_rows("d2", 3, v="raw"))
    assert run("SELECT count(*) AS n FROM t WHERE dt = 'd2'") == [{"n": 3}]
    assert run("SELECT v FROM t WHERE dt = 'd1'") == [{"v": "new"}]
