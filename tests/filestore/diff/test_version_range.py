"""The changes of each version of a range, against differences of neighbouring states and a dictionary."""

import pickle
import random as randoms
from collections import Counter, defaultdict
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.changelog.snapshot_changes import plan_diff, read_changes
from filestore.changelog.version_changes import plan_versions, read_versions
from filestore.diff.version_range import Bound, find_range
from filestore.evolution.schema_change import AddColumn, DropColumn, RenameColumn
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.snapshot.lost_files import SnapshotExpiredError
from filestore.table import FileTable
from filestore.tag.tags import create_tag
from filestore.types.data_types import parse_data_type
from lsm.errors import InvalidInputError
from tests.filestore.diff.test_table_diff import altered, row_there
from tests.filestore.refs.test_versions import with_branch
from tests.support import changelogs
from tests.support.faults import FaultyFileIO
from tests.support.rows import arrow_rows, change_tuples
from tests.support.tables import expire_all_but, key_table, key_values, newest_snapshot, reopened, rows

ByVersion = dict[int, list[tuple[Any, ...]]]


def at_version(version: object, *, inclusive: bool = True) -> Bound:
    return Bound(version=str(version), is_inclusive=inclusive)


def range_changes(
    table: FileTable, start: Bound | None = None, end: Bound | None = None, *, folds: bool = False, raw: bool = False
) -> ByVersion:
    """Changes by version, in the order read."""
    found = find_range(table, start, end, folds_expired=folds)
    by_version: defaultdict[int, list[tuple[Any, ...]]] = defaultdict(list)
    for split in plan_versions(found.table.store, found.steps):
        for each in read_versions(found.table, pickle.loads(pickle.dumps(split)), drops_carryovers=not raw):
            assert each.rows.num_rows == len(each.kinds) == len(each.versions) > 0
            texts = change_tuples([(each.rows, each.kinds)])
            for version, change in zip(each.versions.to_pylist(), texts, strict=True):
                by_version[version].append(change)
    return dict(by_version)


def behind_version(version: object) -> Bound:
    return at_version(version, inclusive=False)


def test_each_version_has_its_own_changes_with_the_rows_that_they_replace() -> None:
    """Also a key that comes and goes within the range; a delete has the whole row; equal rows are no change."""
    table = key_table(bucket="1")
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((1, 10), (3, 3)))
    table.write(rows((3, 0)), pa.array(["-D"]))
    table.compact(full=True)
    table.write(rows((3, 33), (1, 10), (9, 0)), pa.array(["+I", "+I", "-D"]))
    expected = {
        1: [("+I", 1, 1), ("+I", 2, 2)],
        2: [("-U", 1, 1), ("+U", 1, 10), ("+I", 3, 3)],
        3: [("-D", 3, 3)],
        5: [("+I", 3, 33)],
    }
    assert (
        range_changes(table) == range_changes(table, at_version(0)) == range_changes(table, at_version(1)) == expected
    )
    assert range_changes(table, at_version(2), at_version(3)) == {2: expected[2], 3: expected[3]}
    assert range_changes(table, behind_version(2), at_version(3)) == {3: expected[3]}
    assert range_changes(table, at_version(2), behind_version(3)) == {2: expected[2]}
    assert (
        range_changes(table, at_version(4), at_version(4))
        == range_changes(table, behind_version(2), behind_version(3))
        == {}
    )
    assert range_changes(table, behind_version(5)) == {}
    with pytest.raises(InvalidInputError, match=r"the end is before the start: .*start=version 3 end=version 1"):
        range_changes(table, at_version(3), at_version(1))
    with pytest.raises(InvalidInputError, match="no such snapshot"):
        range_changes(table, at_version(6))


PRODUCERS = ["none", "input", "lookup", "full-compaction"]


@pytest.mark.sweep
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    engine=st.sampled_from(sorted(changelogs.ENGINES)),
    producer=st.sampled_from(PRODUCERS),
    vectors=st.booleans(),
    steps=st.lists(changelogs.writes_and_compactions, min_size=2, max_size=8),
)
def test_any_range_of_any_history_is_the_difference_of_each_version_to_the_one_before(
    seed: int, engine: str, producer: str, vectors: bool, steps: list[tuple[str, Any]]
) -> None:
    """Of every merge engine and changelog producer, over compactions and overwrites; applied they give each state."""
    random = randoms.Random(seed)
    options, takes_deletes = changelogs.ENGINES[engine]
    if producer in ("input", "full-compaction") or engine == "first-row":
        vectors = False
    if engine == "first-row":
        producer = random.choice(["none", "lookup"])
    table = key_table(
        schema=changelogs.SCHEMA,
        primary_key=changelogs.KEY,
        partition_by=["p"] if random.random() < 0.5 else [],
        **{
            "bucket": str(random.randint(1, 2)),
            "changelog-producer": producer,
            "deletion-vectors.enabled": str(vectors).lower(),
            "num-sorted-run.compaction-trigger": "3",
        }
        | options,
    )
    for kind, what in steps:
        if kind == "compact":
            table.compact(full=what)
            continue
        data = arrow_rows(changelogs.SCHEMA, *(each for each, _ in what))
        if random.random() < 0.15:
            table.overwrite(data)
        else:
            table.write(data, pa.array([kind if takes_deletes else "+I" for _, kind in what]))
    newest_id = table.store.snapshots.latest_id() or 0
    if newest_id == 0:
        return
    first, last = sorted((random.randint(0, newest_id), random.randint(1, newest_id)))
    found = range_changes(table, behind_version(first), at_version(last))
    expected: ByVersion = {}
    for version in range(first + 1, last + 1):
        before = table.store.snapshots.read(version - 1) if version > 1 else None
        splits = plan_diff(table.store, before, table.store.snapshots.read(version))
        changes = [each for split in splits for each in change_tuples(read_changes(table, split))]
        if changes:
            expected[version] = changes
    assert {version: sorted(map(repr, each)) for version, each in found.items()} == {
        version: sorted(map(repr, each)) for version, each in expected.items()
    }
    state: changelogs.State = {}
    for version, each in sorted(range_changes(table).items()):
        changelogs.apply(state, each, drops_equal=True)
        whole = [each for split in plan_diff(table.store, None, table.store.snapshots.read(version))
                 for each in change_tuples(read_changes(table, split))]  # fmt: skip
        assert sorted(map(repr, state.values())) == sorted(repr(each[1:]) for each in whole)


@pytest.mark.parametrize("engine", ["deduplicate", "partial-update"])
def test_the_state_before_is_read_once_however_many_versions_follow(engine: str) -> None:
    """Over a compaction between the versions, where a merge of some rows is as good as they."""
    options, _ = changelogs.ENGINES[engine]
    table = key_table(
        schema=changelogs.SCHEMA,
        primary_key=changelogs.KEY,
        **{"bucket": "1", "num-sorted-run.compaction-trigger": "99", "write-only": "true"} | options,
    )
    for version in range(20):
        if version == 14:
            table.compact(full=True)
        found = [{"p": "a", "id": each, "v": version, "s": None, "g": version} for each in (1, 100 + version)]
        table.write(arrow_rows(changelogs.SCHEMA, *found))
    reading = FaultyFileIO(table.store.io)
    by_version = range_changes(reopened(table, reading), at_version(11))  # type: ignore[arg-type]
    versions = [each for each in range(11, 22) if each != 15]  # that is the compaction
    assert [len(by_version[each]) for each in versions] == [1 if engine == "first-row" else 3] * 10
    opened = [line for line in reading.log if line.startswith("open_input") and "bucket-0" in line]
    assert len(opened) == len({*opened}) == 20


@pytest.mark.sweep
def test_sums_of_floats_are_those_of_each_version_to_the_last_bit() -> None:
    """A compaction of the newest runs adds in another order, so the versions behind it begin with its sums."""
    table = key_table(
        schema=pa.schema([("id", pa.int64()), ("v", pa.float64())]),
        **{
            "bucket": "1",
            "merge-engine": "aggregation",
            "fields.v.aggregate-function": "sum",
            "num-sorted-run.compaction-trigger": "3",
        },
    )
    random, ids = randoms.Random(3), list(range(5000))
    table.write(pa.table({"id": ids, "v": [random.random() for _ in ids]}))
    table.compact(full=True)
    sums: list[Any] = []
    for _ in range(16):
        table.write(pa.table({"id": [1], "v": [random.uniform(0.1, 1.0)]}))
        sums.append(dict(key_values(table))[1])
        table.compact()
    by_version = range_changes(table, behind_version(1))
    assert [change[-1] for _, found in sorted(by_version.items()) for change in found if change[0] == "+U"] == sums


@pytest.mark.parametrize("compacts", [False, True])
def test_retracts_of_a_key_that_never_was_are_a_row_at_each_version(compacts: bool) -> None:
    """Of what they take back from nothing, whether a compaction has made it an insert or not."""
    options, _ = changelogs.ENGINES["aggregation-retracts"]
    table = key_table(schema=changelogs.SCHEMA, primary_key=changelogs.KEY, **{"bucket": "1"} | options)
    for v in (None, 5, 2):
        table.write(arrow_rows(changelogs.SCHEMA, {"p": "a", "id": 9, "v": v, "s": "yy", "g": None}), pa.array(["-D"]))
        if compacts:
            table.compact(full=True)
    assert table.read().to_arrow(columns=["v"]).to_pylist() == [{"v": -7}]
    by_version = [found for _, found in sorted(range_changes(table).items())]
    assert by_version == [
        [("+I", "a", 9, None, None, None)],
        [("-U", "a", 9, None, None, None), ("+U", "a", 9, -5, None, None)],
        [("-U", "a", 9, -5, None, None), ("+U", "a", 9, -7, None, None)],
    ]


# ---- without a key


def test_rows_that_a_commit_only_rewrites_are_no_changes_without_a_key() -> None:
    """Two equal rows are two rows; raw are what the files say."""
    table = key_table(primary_key=(), bucket="-1")
    table.write(rows((1, 1), (1, 1), (2, None)))
    table.overwrite(rows((1, 1), (2, None), (3, 3)))
    table.write(rows((4, 4)))
    assert range_changes(table, at_version(2)) == {2: [("-D", 1, 1), ("+I", 3, 3)], 3: [("+I", 4, 4)]}
    assert len(range_changes(table, at_version(2), raw=True)[2]) == 6


@pytest.mark.sweep
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), counted=st.booleans())
def test_a_bag_of_rows_at_every_version(seed: int, counted: bool) -> None:
    """Appends, overwrites, compactions and, where rows are counted, deletes: applied they give each version's rows."""
    random = randoms.Random(seed)
    options = {"row-counts": "true", "bucket": "2"} if counted else {"bucket": "-1"}
    table = key_table(primary_key=(), **options)
    states: dict[int, Counter[tuple[Any, ...]]] = {0: Counter()}
    for _ in range(random.randint(2, 8)):
        data = rows(*((random.randint(0, 3), random.choice([None, 1])) for _ in range(random.randint(1, 6))))
        match random.random():
            case chance if chance < 0.2:
                table.overwrite(data)
            case chance if chance < 0.4:
                table.compact(full=True)
            case chance if chance < 0.6 and counted:
                table.write(data, pa.array([random.choice(["+I", "-D"]) for _ in range(data.num_rows)]))
            case _:
                table.write(data)
        version = table.store.snapshots.latest_id() or 0
        signed: Counter[tuple[Any, ...]] = Counter()
        if version:
            for split in plan_diff(table.store, None, newest_snapshot(table)):
                for kind, *row in change_tuples(read_changes(table, split)):
                    signed[tuple(row)] += 1 if kind == "+I" else -1
        states[version] = signed
    found = range_changes(table)
    bag: Counter[tuple[Any, ...]] = Counter()
    for version in range(1, max(states) + 1):
        for kind, *row in found.get(version, []):
            bag[tuple(row)] += {"+I": 1, "-D": -1}[kind]
        if version in states:
            assert {k: n for k, n in bag.items() if n} == {k: n for k, n in states[version].items() if n}


# ---- places


def four_versions() -> FileTable:
    table = key_table(bucket="1")
    for value in (1, 2, 3, 4):
        table.write(rows((1, value)))
    return table


def time_us(table: FileTable, snapshot_id: int) -> int:
    return table.store.snapshots.read(snapshot_id).time_ms * 1000


def test_bounds_are_snapshots_tags_times_and_branches() -> None:
    table = four_versions()
    create_tag(table.store, "two", snapshot_id=2)
    dev = with_branch(table, "dev", tag="two")
    dev.write(rows((1, 30)))
    assert [*range_changes(table, at_version("two"))] == [2, 3, 4]
    assert [*range_changes(table, behind_version("two"), at_version("latest"))] == [3, 4]
    assert [*range_changes(table, at_version("two"), at_version("two"))] == [2]
    assert range_changes(table, behind_version("two"), at_version("dev.latest")) == {3: [("-U", 1, 2), ("+U", 1, 30)]}
    assert range_changes(table, behind_version("dev.two"), at_version("dev.3")) == {3: [("-U", 1, 2), ("+U", 1, 30)]}
    with pytest.raises(InvalidInputError, match=r"the start is not in the history of the end: .*snapshot=3"):
        range_changes(table, behind_version("dev.latest"), at_version("latest"))
    with pytest.raises(InvalidInputError, match=r"no such version: .*version='nine'"):
        range_changes(table, at_version("dev.nine"))


def test_times_are_those_of_commits_in_microseconds() -> None:
    """Our commits have whole milliseconds: a bound between two of them includes neither the one nor excludes it."""
    table = four_versions()
    second, third = time_us(table, 2), time_us(table, 3)

    def versions(start: int, end: int, *, inclusive: bool = True) -> list[int]:
        one, two = (Bound(time_us=each, is_inclusive=inclusive) for each in (start, end))
        return [*range_changes(table, one, two)]

    assert versions(second, third) == [2, 3]
    assert versions(second, third, inclusive=False) == []
    assert versions(second + 1, third - 1) == []
    assert versions(second - 1, third + 1) == versions(second - 1, third + 1, inclusive=False) == [2, 3]
    assert versions(0, 10**18) == [1, 2, 3, 4]
    assert versions(0, 1) == []


def test_expired_versions_are_an_error_or_come_with_the_next_one_that_is_kept() -> None:
    """What is left is read from where it is whole; between two kept states there is the exact difference."""
    table = four_versions()
    create_tag(table.store, "two", snapshot_id=2)
    table.write(rows((1, 5), (2, 2)))
    expire_all_but(table, 2)
    assert table.store.snapshots.ids() == [4, 5]
    assert range_changes(table, behind_version(4)) == {5: [("-U", 1, 4), ("+U", 1, 5), ("+I", 2, 2)]}
    for start in (at_version(2), at_version(3), at_version(4), at_version(0), behind_version(2), behind_version("two")):
        with pytest.raises(
            SnapshotExpiredError, match=r"have expired: .*earliest=4.*fix='start at version 4 EXCLUSIVE"
        ):
            range_changes(table, start)
    with pytest.raises(SnapshotExpiredError, match="versions of that time have expired"):
        range_changes(table, Bound(time_us=5))
    assert range_changes(table, behind_version("two"), folds=True) == {
        4: [("-U", 1, 2), ("+U", 1, 4)],
        5: [("-U", 1, 4), ("+U", 1, 5), ("+I", 2, 2)],
    }
    assert range_changes(table, at_version(0), at_version("two"), folds=True) == {2: [("+I", 1, 2)]}
    with pytest.raises(SnapshotExpiredError, match="missing=1 "):  # the state before is nowhere
        range_changes(table, at_version(2), folds=True)
    assert range_changes(table) == {4: [("+I", 1, 4)], 5: [("-U", 1, 4), ("+U", 1, 5), ("+I", 2, 2)]}


def test_what_was_rolled_back_is_in_no_range() -> None:
    """Its tags went with it; what another branch has instead does not begin at this one's versions."""
    table = four_versions()
    create_tag(table.store, "two", snapshot_id=2)
    create_tag(table.store, "three", snapshot_id=3)
    roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(2)))
    table.write(rows((1, 33)))
    assert range_changes(table, at_version(3)) == {3: [("-U", 1, 2), ("+U", 1, 33)]}
    with pytest.raises(InvalidInputError, match=r"no such version: .*version='three'"):
        range_changes(table, behind_version("three"))
    dev = with_branch(table, "dev", tag="two")
    dev.write(rows((1, 34)))
    with pytest.raises(InvalidInputError, match=r"the start is not in the history of the end: .*rolled back"):
        range_changes(table, behind_version("latest"), at_version("dev.latest"))


def test_rows_have_the_columns_of_the_last_version() -> None:
    """A column that came later is null before; values of one that went are compared no more."""
    table = key_table(bucket="1")
    table.write(rows((1, 1), (2, 2)))
    table.write(rows((1, 10)))
    table = altered(table, RenameColumn(("v",), "w"), AddColumn(path=("x",), type=parse_data_type("STRING")))
    row_there(table, id=2, w=2, x="new")
    assert range_changes(table, at_version(2)) == {
        2: [("-U", 1, 1, None), ("+U", 1, 10, None)],
        3: [("-U", 2, 2, None), ("+U", 2, 2, "new")],
    }
    table = altered(table, DropColumn(path=("w",)))
    assert range_changes(table, at_version(2)) == {3: [("-U", 2, None), ("+U", 2, "new")]}, "before the next commit too"
    row_there(table, id=3, x="last")
    assert range_changes(table, at_version(2)) == {
        3: [("-U", 2, None), ("+U", 2, "new")],
        4: [("+I", 3, "last")],
    }
    assert range_changes(table, at_version(2), at_version(2)) == {2: [("-U", 1, 1), ("+U", 1, 10)]}
