"""Streams that begin in changelogs that outlived their snapshots: those of Java, and those of Fluvial."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest

from engine import Catalog, Table
from filestore.maintenance.changelog_expiry import expire_changelogs
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.refs.live_references import changelog_references
from filestore.snapshot.retention import Retention
from lsm.errors import CorruptDataError, InvalidInputError
from tests.filestore.maintenance.test_kept_changelogs import PRODUCERS, of_java
from tests.support.rows import row_dicts

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ONE: Final = Retention(min_count=1, max_count=1, age_ms=0, limit=100)
KEPT: Final = {"changelog.num-retained.max": "7", "changelog.num-retained.min": "7"}
Change = tuple[str, int, int]  # kind, key, value


def changes_followed(table: Table, key: str = "id", **choices: Any) -> list[Change]:
    with table.stream(None, follow=False, **choices) as stream:
        found = [row for each in stream for row in each.rows.to_pylist()]
    return [(row["_row_kind"], row[key], row["v"]) for row in found]


def changes_behind(table: Table, first: int, key: str = "id") -> list[Change]:
    return changes_followed(table, key, options={"scan.mode": "from-snapshot", "scan.snapshot-id": str(first)})


def written_often(tmp_path: Path, producer: str, **options: str) -> Table:
    """Twelve commits of upserts and deletes, and compactions between them."""
    key = [] if producer == "append" else ["id"]
    own = {"bucket": "-1"} if producer == "append" else {"bucket": "1", "changelog-producer": producer}
    table = Catalog(str(tmp_path)).create_table("db.t", SCHEMA, primary_key=key, options={**own, **KEPT, **options})
    for number in range(12):
        rows = pa.table({"id": [number % 4, 4 + number % 3], "v": [number, number]}, SCHEMA)
        kinds = pa.array(["+U", "-D"]) if number % 3 == 2 and key else None
        table.files.write(rows, kinds=kinds)
        if producer != "append":
            table.files.compact(full=number % 2 == 0)
    return table


def kept_ids(table: Table) -> list[int]:
    return sorted(each.snapshot_id for each in changelog_references(table.store))


def rows_after(found: Sequence[Change], rows: Mapping[int, int]) -> dict[int, int]:
    state = dict(rows)
    for kind, key, value in found:
        if kind in ("-D", "-U"):
            state.pop(key, None)
        else:
            state[key] = value
    return state


@pytest.mark.parametrize("producer", ["none", "input", "lookup", "full-compaction", "append"])
def test_a_stream_from_a_changelog_is_the_stream_from_its_snapshot(tmp_path: Path, producer: str) -> None:
    """The changes of expired snapshots are those that they had while they were there, commit by commit."""
    table = written_often(tmp_path, producer)
    newest = table.store.snapshots.ids()[-1]
    firsts = (newest - 6, newest - 4, newest - 1, newest)
    whole, before = changes_behind(table, 1), {first: changes_behind(table, first) for first in firsts}
    list(expire_snapshots(table.store, ONE))
    table = Catalog(str(tmp_path)).table("db.t")
    assert kept_ids(table) == list(range(newest - 6, newest))
    for first in firsts:
        found = changes_behind(table, first)
        if producer == "input":  # what the writer gave, without the rows that it replaced
            then = whole[: len(whole) - len(before[first])]
            assert rows_after(found, rows_after(then, {})) == rows_after(whole, {})
        else:
            assert found == before[first]
    with pytest.raises(InvalidInputError, match="no such snapshot"):
        changes_behind(table, newest - 7)


def test_a_time_and_a_consumer_are_found_in_changelogs(tmp_path: Path) -> None:
    table = written_often(tmp_path, "lookup")
    newest = table.store.snapshots.ids()[-1]
    times = {
        "scan.mode": "from-timestamp",
        "scan.timestamp-millis": str(table.store.snapshots.read(newest - 3).time_ms),
    }
    at_time, all_changes = changes_followed(table, options=times), changes_behind(table, newest - 5)
    list(expire_snapshots(table.store, ONE))
    table = Catalog(str(tmp_path)).table("db.t")
    assert changes_followed(table, options=times) == at_time
    table.store.consumers.write("late", newest - 5)
    assert changes_followed(table, consumer="late") == all_changes


@pytest.mark.parametrize("producer", PRODUCERS)
def test_changelogs_of_java_give_the_rows_of_the_table(producer: str) -> None:
    """Java wrote nine times (k, v), and kept six; what the stream gives of a key at last is its row."""
    table = Table(of_java(producer))
    first = kept_ids(table)[0]
    found = changes_behind(table, first, "k")
    rows = {row["k"]: row["v"] for row in row_dicts(table.files, "k")}
    touched = {key for _, key, _ in found}
    assert len(touched) > 1
    assert rows_after(found, {}) == {key: value for key, value in rows.items() if key in touched}


def test_changes_that_only_the_rows_before_would_tell_are_refused(tmp_path: Path) -> None:
    """What a writer gave to an aggregation is not what it made of the table."""
    options = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"}
    table = written_often(tmp_path, "input", **options, **{"aggregation.remove-record-on-delete": "true"})
    list(expire_snapshots(table.store, ONE))
    table = Catalog(str(tmp_path)).table("db.t")
    with pytest.raises(CorruptDataError, match="restart from a full snapshot"):
        changes_behind(table, kept_ids(table)[0])


def test_an_overwrite_whose_rows_before_have_expired_is_refused(tmp_path: Path) -> None:
    """Its changelog, perhaps all that is left of it, has the new rows alone: the replaced ones stayed in copies."""
    table = written_often(tmp_path, "input")
    table.overwrite(pa.table({"id": [9], "v": [9]}, SCHEMA))
    own = table.store.snapshots.ids()[-1]
    for _ in range(2):
        list(expire_snapshots(table.store, ONE))
        table = Catalog(str(tmp_path)).table("db.t")
        for first in (kept_ids(table)[0], own):
            with pytest.raises(CorruptDataError, match="restart from a full snapshot"):
                changes_behind(table, first)
        table.write(pa.table({"id": [9], "v": [10]}, SCHEMA))
    assert changes_behind(table, own + 1) == [("+I", 9, 10)] * 2


@pytest.mark.parametrize("merges", [False, True], ids=["replaced", "summed"])
def test_the_first_changelog_is_whole_or_a_loss(tmp_path: Path, merges: bool) -> None:
    """Nothing was before it: a first overwrite is what its changelog says. A loss is answered as any other."""
    sums = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum"} if merges else {}
    table = Catalog(str(tmp_path)).create_table(
        "db.t", SCHEMA, primary_key=["id"], options={"bucket": "1", "changelog-producer": "input", **KEPT, **sums}
    )
    row = pa.table({"id": [1], "v": [1]}, SCHEMA)
    table.overwrite(row)
    table.write(row)
    list(expire_snapshots(table.store, ONE))
    table = Catalog(str(tmp_path)).table("db.t")
    start = {"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}
    if not merges:
        assert changes_followed(table, options=start) == [("+I", 1, 1)] * 2
        return
    with pytest.raises(CorruptDataError, match=r"log\.on-offset-lost"):
        changes_followed(table, options=start)
    assert changes_followed(table, options={**start, "log.on-offset-lost": "resnapshot"}) == [("+I", 1, 2)]


def test_a_changelog_that_expires_under_a_stream_is_a_loss_that_is_named(tmp_path: Path) -> None:
    table = written_often(tmp_path, "lookup")
    list(expire_snapshots(table.store, ONE))
    table = Catalog(str(tmp_path)).table("db.t")
    start = {"scan.mode": "from-snapshot", "scan.snapshot-id": str(kept_ids(table)[0])}
    with table.stream(None, follow=False, options=start) as stream:
        next(iter(stream))
        list(expire_changelogs(table.store, ONE))
        with pytest.raises(CorruptDataError, match=r"log\.on-offset-lost"):
            list(stream)
