"""What is gone never reads as empty, and what was made again never reads as what it was."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.broker.broker import Broker
from engine.monitor.doctor import examine
from engine.monitor.inspection import inspect_table
from engine.monitor.lag_report import stream_lags
from engine.monitor.table_probe import TableProbe
from engine.procedures import (
    PROCEDURES,
    clear_consumers,
    compact,
    create_branch,
    create_tag,
    delete_branch,
    expire_snapshots,
    rename_branch,
    replace_main_branch,
    rollback,
    table_diff,
)
from engine.procedures.registry import ParameterKind, Procedure
from engine.stream.position.position import Phase
from filestore.refs.savepoint_files import list_savepoints
from filestore.schema.table_schema import TABLE_UUID_KEY
from filestore.snapshot.snapshot import TABLE_KEY
from filestore.tag.tags import list_tags
from lsm.errors import FluvialError, InvalidInputError
from tests.support.waiting import wait_until
from tests.support.warehouses import ID_SCHEMA

OTHER = pa.schema([("id", pa.int64()), ("other", pa.string()), ("more", pa.int64())])
OPTIONS = {"bucket": "1"}


def filled_table(table: Table, commits: int = 3) -> Table:
    """Rows 1 to 3, the newest snapshot tagged."""
    for key in range(1, commits + 1):
        table.write(pa.Table.from_pylist([{"id": key}]))
    create_tag(table, "eod")
    return table


def table_to_go(catalog: Catalog, schema: pa.Schema = ID_SCHEMA, commits: int = 3) -> Table:
    return filled_table(catalog.create_table("db.t", schema, primary_key=["id"], options=OPTIONS), commits)


End = Callable[[Catalog], Iterator[Table]]  # gives an opened table, then ends it


def dropped(catalog: Catalog) -> Iterator[Table]:
    yield table_to_go(catalog)
    catalog.drop_table("db.t")


def made_twice(catalog: Catalog, schema: pa.Schema = ID_SCHEMA, commits: int = 3) -> Iterator[Table]:
    yield from dropped(catalog)
    table_to_go(catalog, schema, commits)


def made_again_with_other_columns(catalog: Catalog) -> Iterator[Table]:
    return made_twice(catalog, OTHER)


def made_again_with_more_commits(catalog: Catalog) -> Iterator[Table]:
    return made_twice(catalog, OTHER, 9)


def made_again_with_fewer_commits(catalog: Catalog) -> Iterator[Table]:
    return made_twice(catalog, ID_SCHEMA, 1)


def made_again_empty(catalog: Catalog) -> Iterator[Table]:
    yield from dropped(catalog)
    catalog.create_table("db.t", ID_SCHEMA, primary_key=["id"], options=OPTIONS)


def renamed(catalog: Catalog) -> Iterator[Table]:
    yield table_to_go(catalog)
    catalog.rename_table("db.t", "db.u")


def renamed_and_followed(catalog: Catalog) -> Iterator[Table]:
    yield from renamed(catalog)
    filled_table(catalog.create_table("db.v", OTHER, primary_key=["id"], options=OPTIONS), 5)
    catalog.rename_table("db.v", "db.t")


def without_ids(table: Table) -> None:
    """As another engine makes it: neither its schema nor its snapshots and tags have Fluvial's id of the table."""
    root = Path(table.store.paths.root)
    for path in (*root.glob("schema/*"), *root.glob("snapshot/snapshot-*"), *root.glob("tag/tag-*")):
        body = json.loads(path.read_text())
        body.pop(TABLE_UUID_KEY, None)
        body.get("properties", {}).pop(TABLE_KEY, None)
        path.write_text(json.dumps(body))


def made_again_by_another_engine(catalog: Catalog) -> Iterator[Table]:
    without_ids(table_to_go(catalog))
    yield catalog.table("db.t")
    catalog.drop_table("db.t")
    without_ids(table_to_go(catalog))


def branched(catalog: Catalog) -> Table:
    create_branch(table_to_go(catalog), "dev", tag="eod")
    branch = catalog.table("db.t", branch="dev")
    branch.write(pa.Table.from_pylist([{"id": 4}]))
    return branch


def branch_deleted(catalog: Catalog) -> Iterator[Table]:
    yield branched(catalog)
    delete_branch(catalog.table("db.t"), "dev")


def branch_made_again(catalog: Catalog) -> Iterator[Table]:
    """At the same tag, so that it begins with a copy of a snapshot that the former one had."""
    yield from branch_deleted(catalog)
    create_branch(catalog.table("db.t"), "dev", tag="eod")


def branch_made_again_with_commits(catalog: Catalog) -> Iterator[Table]:
    yield from branch_made_again(catalog)
    catalog.table("db.t", branch="dev").write(pa.Table.from_pylist([{"id": 5}]))


def branch_renamed(catalog: Catalog) -> Iterator[Table]:
    yield branched(catalog)
    rename_branch(catalog.table("db.t"), "dev", "fix")


def branch_renamed_and_made_again(catalog: Catalog) -> Iterator[Table]:
    """From what it was: the name leads to the same snapshot."""
    yield from branch_renamed(catalog)
    renamed_to = catalog.table("db.t", branch="fix")
    create_tag(renamed_to, "eod-fix")
    create_branch(renamed_to, "dev", tag="eod-fix")


def branch_of_a_dropped_table(catalog: Catalog) -> Iterator[Table]:
    yield branched(catalog)
    catalog.drop_table("db.t")


def main_replaced(catalog: Catalog) -> Iterator[Table]:
    branched(catalog)
    yield catalog.table("db.t")
    replace_main_branch(catalog.table("db.t"), "dev")


def main_moved_back(catalog: Catalog) -> Iterator[Table]:
    list(main_replaced(catalog))
    yield catalog.table("db.t")
    replace_main_branch(catalog.table("db.t"), "main")


ENDS: Sequence[End] = (
    dropped, made_twice, made_again_with_other_columns, made_again_with_more_commits, made_again_with_fewer_commits,
    made_again_empty, renamed, renamed_and_followed, made_again_by_another_engine, branch_deleted, branch_made_again,
    branch_made_again_with_commits, branch_renamed, branch_renamed_and_made_again, branch_of_a_dropped_table,
    main_replaced, main_moved_back,
)  # fmt: skip


def streamed_rows(table: Table, start: Any = None, **choices: Any) -> list[Any]:
    with table.stream(start, timeout_s=20, **choices) as stream:
        return list(stream)


def lived(table: Table) -> Any:
    with table.live(timeout_s=20) as live:
        return list(live.rows())


WAYS: Mapping[str, Callable[[Table], Any]] = {
    "read": lambda table: table.read(),
    "arrow": pa.table,
    "snapshot": lambda table: table.read(snapshot_id=1).to_arrow(),
    "tag": lambda table: table.read(tag="eod").to_arrow(),
    "version": lambda table: table.read(version="snapshot.2").to_arrow(),
    "time": lambda table: table.read(timestamp=1).to_arrow(),
    "time of now": lambda table: table.read(timestamp="2999-01-01").to_arrow(),
    "wait": lambda table: table.read(at_least="3", options={"scan.at-least.timeout": "1 s"}).to_arrow(),
    "incremental": lambda table: table.read(options={"incremental-between": "1,2"}).to_arrow(),
    "incremental to a tag": lambda table: table.read(options={"incremental-between": "1,eod"}).to_arrow(),
    "latest snapshot": lambda table: table.latest_snapshot(),
    "latest id": lambda table: table.store.snapshots.latest_id(),
    "log": lambda table: table.log_end_offsets(),
    "snapshots": lambda table: [table.store.snapshots.find(each) for each in table.store.snapshots.ids()],
    "one snapshot": lambda table: table.store.snapshots.read(2),
    "tags": lambda table: list_tags(table.store),
    "tagged": lambda table: list(table.store.snapshots.tagged()),
    "diff": lambda table: table.diff(1, 2).to_arrow(),
    "diff from nothing": lambda table: table.diff("0").to_arrow(),
    "table diff": lambda table: table_diff(table, "1", "2"),
    "stream": lambda table: streamed_rows(table, follow=False),
    "stream that follows": lambda table: streamed_rows(table, follow=True),
    "latest stream": lambda table: streamed_rows(table, "latest", follow=False),
    "stream from a snapshot": lambda table: streamed_rows(table, 1, follow=False),
    "stream from a tag": lambda table: streamed_rows(table, "eod", follow=False),
    "live": lived,
    "compact": lambda table: table.compact(full=True),
    "compact by the procedure": compact,
    "expire": lambda table: expire_snapshots(table, retain_max=1, retain_min=1, older_than="2999-01-01"),
    "roll back": lambda table: rollback(table, snapshot=1),
    "create a tag": lambda table: create_tag(table, "more"),
    "write": lambda table: table.write(pa.Table.from_pylist([{"id": 9}])),
    "overwrite": lambda table: table.overwrite(pa.Table.from_pylist([{"id": 9}])),
    "inspect": lambda table: inspect_table(table.store),
    "probe": lambda table: TableProbe(table).look(),
    "doctor": examine,
    "lag": stream_lags,
    "savepoints": lambda table: list_savepoints(table.store),
    "consumers": clear_consumers,
}


def said(act: Callable[[Table], Any], table: Table) -> str:
    try:
        return f"no error: {act(table)!r}"
    except InvalidInputError as error:
        return str(error)
    except (FluvialError, OSError) as error:
        return f"{type(error).__name__}: {error}"


@pytest.mark.parametrize("end", ENDS)
def test_each_way_of_reading_says_that_what_was_opened_is_gone(catalog: Catalog, end: End) -> None:
    table, *_ = end(catalog)
    found = {way: said(act, table) for way, act in WAYS.items()}
    assert {way: text for way, text in found.items() if "is gone" not in text} == {}


def required(procedure: Procedure[Any]) -> Mapping[str, Any]:
    """Some value for each argument that has to be given."""
    values = {ParameterKind.TEXT: "x", ParameterKind.INTEGER: 1, ParameterKind.BOOLEAN: True}
    return {each.name: values[each.kind] for each in procedure.parameters if each.is_required}


@pytest.mark.parametrize("end", [dropped, made_twice, renamed_and_followed, branch_of_a_dropped_table])
def test_each_procedure_says_that_the_table_is_gone(catalog: Catalog, end: End) -> None:
    table, *_ = end(catalog)
    of_tables = [each for each in PROCEDURES.values() if each.is_of_table]
    assert len(of_tables) > 30
    found = {each.name: said(lambda table, run=each: run(table, **required(run)), table) for each in of_tables}
    assert {name: text for name, text in found.items() if "is gone" not in text} == {}


def begun_stream(table: Table) -> Callable[[Table], object]:
    stream = table.stream(timeout_s=20)
    while next(stream).position.at.phase is not Phase.LOG:
        pass
    return lambda _: next(stream)


def begun_live(table: Table) -> Callable[[Table], object]:
    live = table.live()

    def look(_: Table) -> object:
        with live:
            wait_until(lambda: live._failure is not None, "the copy ends")
            return live.get(1)

    return look


def begun_system_table(catalog: Catalog, name: str) -> Callable[[Table], Callable[[Table], object]]:
    def begin(table: Table) -> Callable[[Table], object]:
        read = catalog.system_table(f"{table.name}${name}")
        assert read.to_arrow().num_rows
        return lambda _: read.to_arrow()

    return begin


@pytest.mark.parametrize("end", [dropped, made_twice, made_again_with_other_columns, made_again_empty])
def test_a_table_with_a_log_says_that_it_is_gone(tmp_path: Path, broker: Broker, end: End) -> None:
    """Also what reads the log beside the files, or the log alone."""
    catalog = Catalog(tmp_path / "warehouse", {"log.kafka.bootstrap.servers": broker.bootstrap_servers})
    course = end(catalog)
    table = next(course)
    begun = {"begun stream": begun_stream(table), "begun live": begun_live(table)}
    writer = table.writer("w")
    list(course)
    ways = {
        **begun,
        "union": lambda table: table.read(options={"scan.log.union": "true"}).to_arrow(),
        "writer": lambda _: writer.write(pa.Table.from_pylist([{"id": 9}])).result(20),
        **{way: act for way, act in WAYS.items() if way in ("read", "stream", "live", "lag", "write", "doctor")},
    }
    found = {way: said(act, table) for way, act in ways.items()}
    assert {way: text for way, text in found.items() if "is gone" not in text} == {}


def begun_read(table: Table) -> Callable[[Table], object]:
    """It may have all of its rows still."""
    read = table.read()
    rows = read.to_arrow()

    def again(_: Table) -> object:
        if read.to_arrow().equals(rows):
            raise InvalidInputError("what is gone reads as it was")
        return read.to_arrow()

    return again


@pytest.mark.parametrize("end", ENDS)
def test_what_was_begun_before_says_that_what_was_opened_is_gone(catalog: Catalog, end: End) -> None:
    course = end(catalog)
    table = next(course)
    begun = {
        "stream": begun_stream(table),
        "live": begun_live(table),
        "system table": begun_system_table(catalog, "snapshots")(table),
        "read": begun_read(table),
    }
    list(course)
    found = {way: said(act, table) for way, act in begun.items()}
    assert {way: text for way, text in found.items() if "is gone" not in text} == {}
