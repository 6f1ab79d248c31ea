import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.io.file_io import FileIO, LocalFileIO
from filestore.layout.paths import TablePaths
from filestore.snapshot.snapshot import PARENT_KEY, CommitKind, Snapshot, carried_offsets
from filestore.snapshot.snapshot_store import SnapshotStore
from lsm.errors import CorruptDataError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.support import hostile
from tests.support.faults import FaultyFileIO, MemoryFileIO, When
from tests.support.vectors import GOLDEN, PROPERTY

PATHS = TablePaths("/w/db.db/t")
FILES = [
    *sorted(GOLDEN.rglob("snapshot-*")),
    *sorted(GOLDEN.rglob("tag-*")),
    *sorted(GOLDEN.rglob("changelog/changelog-*")),
]
TAG_KEYS = {"tagCreateTime", "tagTimeRetained"}


def snapshot(snapshot_id: int, **changes: Any) -> Snapshot:
    first = Snapshot(
        id=snapshot_id,
        schema_id=0,
        base_manifest_list=f"manifest-list-{snapshot_id}-0",
        base_manifest_list_size=10,
        delta_manifest_list=f"manifest-list-{snapshot_id}-1",
        delta_manifest_list_size=20,
        commit_user="query",
        commit_identifier=snapshot_id,
        commit_kind=CommitKind.APPEND,
        time_ms=snapshot_id * 1000,
        total_record_count=1,
        delta_record_count=1,
        uuid=f"uuid-{snapshot_id}",
    )
    return replace(first, **changes)


def store_with(*snapshots: Snapshot, io: MemoryFileIO | None = None) -> SnapshotStore:
    store = SnapshotStore(io or MemoryFileIO(), PATHS)
    for each in snapshots:
        assert store.publish(each)
    return store


# ---- the text of a snapshot


@pytest.mark.parametrize("path", FILES, ids=[str(path.relative_to(GOLDEN)) for path in FILES])
def test_golden_snapshots_are_written_as_they_were(path: Any) -> None:
    """FL-157: snapshots, tags and changelogs by Java 1.4.2, pypaimon and our notes' writer."""
    body = json.loads(path.read_bytes())
    written = json.loads(Snapshot.from_json(path.read_bytes()).to_json())
    assert written == {key: value for key, value in body.items() if key not in TAG_KEYS}


def test_golden_snapshots_are_there() -> None:
    assert len(FILES) > 100


def test_log_offsets_are_kept_by_bucket() -> None:
    """FL-72."""
    text = snapshot(1, log_offsets={0: 123, 7: 2**40}).to_json()
    assert json.loads(text)["logOffsets"] == {"0": 123, "7": 2**40}
    assert Snapshot.from_json(text).log_offsets == {0: 123, 7: 2**40}


def test_what_is_absent_is_not_written() -> None:
    assert list(json.loads(snapshot(1, uuid=None).to_json())) == [
        "version",
        "id",
        "schemaId",
        "baseManifestList",
        "baseManifestListSize",
        "deltaManifestList",
        "deltaManifestListSize",
        "commitUser",
        "commitIdentifier",
        "commitKind",
        "timeMillis",
        "totalRecordCount",
        "deltaRecordCount",
    ]


def test_null_is_absent_and_unknown_keys_are_kept() -> None:
    """FL-157: those of a tag are its own, not its snapshot's."""
    body = json.loads(snapshot(1).to_json())
    nulls = {"changelogManifestList": None, "totalRecordCount": None, "logOffsets": None}
    unknown = {"of-the-future": [1], "alsoNull": None}
    of_tag = {"tagCreateTime": [2026, 1, 1, 0, 0], "tagTimeRetained": 1.5, "fluvialCut": {}}
    read = Snapshot.from_json(json.dumps(body | nulls | unknown | of_tag))
    assert read == snapshot(1, total_record_count=None)
    del body["totalRecordCount"]
    assert json.loads(read.to_json()) == body | unknown


def test_the_least_number_is_no_watermark() -> None:
    body = json.loads(snapshot(1).to_json()) | {"watermark": -(2**63)}
    assert Snapshot.from_json(json.dumps(body)).watermark is None


@pytest.mark.sweep
@PROPERTY
@given(
    st.builds(
        Snapshot,
        id=st.integers(1, 2**60),
        schema_id=st.integers(0, 9),
        base_manifest_list=hostile.NAMES,
        base_manifest_list_size=st.none() | st.integers(0),
        delta_manifest_list=hostile.NAMES,
        delta_manifest_list_size=st.none() | st.integers(0, 2**60),
        changelog_manifest_list=st.none() | hostile.NAMES,
        index_manifest=st.none() | hostile.NAMES,
        commit_user=st.text(),
        commit_identifier=st.integers(0, 2**63 - 1),
        commit_kind=st.sampled_from(CommitKind),
        time_ms=st.integers(0, 2**60),
        log_offsets=st.dictionaries(st.integers(0, 1000), st.integers(0, 2**62)),
        total_record_count=st.none() | st.integers(0, 2**60),
        watermark=st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
        properties=st.dictionaries(st.text(), st.text()),
    ).filter(lambda each: (each.base_manifest_list_size or 0) < 2**63)
)
def test_json_and_back(each: Snapshot) -> None:
    assert Snapshot.from_json(each.to_json()) == each


@pytest.mark.parametrize(
    "change",
    [
        {"commitKind": "append"},
        {"commitKind": None},
        {"id": "1"},
        {"id": None},
        {"schemaId": True},
        {"baseManifestList": 5},
        {"deltaManifestList": None},
        {"timeMillis": 1.5},
        {"logOffsets": {"x": 1}},
        {"logOffsets": [1]},
        {"commitUser": None},
    ],
)
def test_a_snapshot_without_its_parts_is_corrupt(change: dict[str, Any]) -> None:
    body = json.loads(snapshot(1).to_json()) | change
    with pytest.raises(CorruptDataError):
        Snapshot.from_json(json.dumps(body))


@PROPERTY
@given(st.binary(max_size=100))
def test_garbage_is_corrupt(body: bytes) -> None:
    with pytest.raises(CorruptDataError):
        Snapshot.from_json(body)


# ---- finding


def test_an_empty_table_has_no_snapshot() -> None:
    store = store_with()
    assert store.latest() is None
    assert store.latest_id() is None
    assert store.earliest_id() is None
    assert store.as_of(10**15, now_ms=10**15) is None
    assert store.ids() == []


HINTS: list[bytes | None] = [
    None,
    b"",
    b"garbage",
    b"0",
    b"1",
    b"2",
    b"3",
    b"3\n",
    b"4",
    b"999",
    b"-1",
    "٣".encode(),
    b"1" * 5000,
]


@pytest.mark.parametrize("hint", HINTS)
def test_hints_never_change_the_answer(hint: bytes | None) -> None:
    io = MemoryFileIO()
    store = store_with(snapshot(1), snapshot(2), snapshot(3), io=io)
    if hint is not None:
        io.files[PATHS.latest_hint] = hint
    assert store.latest() == snapshot(3)


@pytest.mark.parametrize("hint", [None, b"", b"x", b"1", b"2", b"9", b"9" * 5000])
def test_the_earliest_is_found_without_a_good_hint(hint: bytes | None) -> None:
    io = MemoryFileIO()
    store = store_with(snapshot(2), snapshot(3), io=io)
    if hint is not None:
        io.files[PATHS.earliest_hint] = hint
    assert store.earliest_id() == 2


def test_other_names_in_the_directory_are_no_snapshots() -> None:
    io = MemoryFileIO()
    store = store_with(snapshot(1), io=io)
    for name in (".snapshot-2.x.tmp", "snapshot-2.bak", "snapshot-", "LATEST", "EARLIEST"):
        io.files[f"{PATHS.snapshot_dir}/{name}"] = b"x"
    assert store.ids() == [1]


def test_reading_looks_at_what_is_there() -> None:
    store = store_with(snapshot(1))
    assert store.read(1) == store.find(1) == snapshot(1)
    assert store.exists(1)
    assert not store.exists(2)
    assert store.find(2) is None
    with pytest.raises(FileNotFoundError):
        store.read(2)


def test_a_snapshot_under_another_number_is_corrupt() -> None:
    io = MemoryFileIO()
    io.files[PATHS.snapshot(2)] = snapshot(1).to_json().encode()
    with pytest.raises(CorruptDataError, match="another snapshot"):
        SnapshotStore(io, PATHS).read(2)


def test_a_truncated_snapshot_names_its_file_and_size() -> None:
    io = MemoryFileIO()
    store = store_with(snapshot(1), io=io)
    body = io.files[PATHS.snapshot(1)]
    for size in range(len(body) - 1):
        io.files[PATHS.snapshot(1)] = body[:size]
        with pytest.raises(CorruptDataError, match=f"{PATHS.snapshot(1)} size_bytes={size} "):
            store.latest()


def test_the_walk_back_ends_at_the_first_snapshot_or_where_one_expired() -> None:
    io = MemoryFileIO()
    store = store_with(snapshot(1), snapshot(2), snapshot(3), snapshot(4), io=io)
    assert [each.id for each in store.back_from(snapshot(3))] == [3, 2, 1]
    assert list(store.back_from(None)) == []
    del io.files[PATHS.snapshot(2)]
    assert [each.id for each in store.back_from(snapshot(4))] == [4, 3]


def test_a_fork_is_not_taken_for_the_snapshot_that_expired() -> None:
    """A stream found its batch in one that nobody took back, and did not commit it again."""
    first, fork = snapshot(2, uuid="b"), snapshot(3, uuid="fork", properties={PARENT_KEY: "b"})
    kept = snapshot(4, uuid="d", properties={PARENT_KEY: "c"})
    store = store_with(first, fork, kept)
    store.claim_up_to(4)
    assert store.latest() == kept
    assert list(store.back_from(kept)) == [kept]
    assert [store.line().has(each) for each in (2, 3, 4)] == [False, False, True]
    assert list(store.back_from(fork)) == [fork, first]


def test_offsets_of_the_log_are_those_of_the_newest_snapshot_that_has_some() -> None:
    """FL-72: other engines' commits do not carry them on."""
    first, second = snapshot(1, log_offsets={0: 7}), snapshot(2, log_offsets={0: 9, 1: 3})
    assert carried_offsets([snapshot(3), second, first]) == {0: 9, 1: 3}
    assert carried_offsets([snapshot(2), snapshot(1)]) == {}
    assert carried_offsets([]) == {}
    assert carried_offsets([snapshot(3), snapshot(2)]) is None  # the first, which may have had some, expired


@PROPERTY
@given(st.lists(st.integers(0, 50), min_size=1, max_size=20).map(sorted), st.integers(-1, 60))
def test_a_time_finds_the_last_snapshot_until_then(times: list[int], time_ms: int) -> None:
    """TAG-08: several snapshots may have one time; the last of them counts."""
    snapshots = [snapshot(index, time_ms=each) for index, each in enumerate(times, 1)]
    expected = [each for each in snapshots if each.time_ms <= time_ms]
    assert store_with(*snapshots).as_of(time_ms, now_ms=10**15) == (expected[-1] if expected else None)


def test_tags_are_snapshots() -> None:
    store = SnapshotStore(LocalFileIO(), TablePaths(str(GOLDEN / "java-1.4.2" / "db.db" / "app_branches")))
    assert store.tag_names() == ["t_ttl", "tag1"]
    assert store.tag("t_ttl").id == 1  # with the retention that Java adds
    with pytest.raises(InvalidInputError, match=r"tag=nope tags=\['t_ttl', 'tag1'\]"):
        store.tag("nope")


def test_branches_have_their_own_snapshots() -> None:
    paths = TablePaths(str(GOLDEN / "java-1.4.2" / "db.db" / "app_branches"))
    for branch in ("b1", "b2"):
        ids = SnapshotStore(LocalFileIO(), paths.with_branch(branch)).ids()
        names = {
            path.name
            for path in (GOLDEN / f"java-1.4.2/db.db/app_branches/branch/branch-{branch}/snapshot").glob("snap*")
        }
        assert {f"snapshot-{each}" for each in ids} == names


# ---- publishing


def test_a_number_is_published_once() -> None:
    """FL-92, FL-165."""
    store = store_with(snapshot(1))
    assert not store.publish(snapshot(1, uuid="another"))
    assert store.latest() == snapshot(1)


def test_publishing_again_what_is_published_is_success() -> None:
    """FL-164: the answer to the first attempt may have got lost."""
    store = store_with(snapshot(1))
    assert store.publish(snapshot(1))


class RenamingFileIO(MemoryFileIO):
    """Somebody else publishes by rename, right behind our link: Java's way on a local disk."""

    def create_exclusive(self, path: str, body: bytes) -> bool:
        won = super().create_exclusive(path, body)
        self.files[path] = snapshot(1, uuid="java").to_json().encode()
        return won


def test_a_snapshot_that_was_overwritten_is_not_ours() -> None:
    assert not SnapshotStore(RenamingFileIO(), PATHS).publish(snapshot(1))


class RawFileIO(MemoryFileIO):
    """A file system whose errors are bare."""

    def create_exclusive(self, path: str, body: bytes) -> bool:
        super().create_exclusive(path, body)
        raise OSError(5, "Input/output error")


def test_a_bare_error_while_publishing_is_of_unknown_outcome() -> None:
    io = RawFileIO()
    with pytest.raises(OutcomeUnknownError, match="snapshot-1"):
        SnapshotStore(io, PATHS).publish(snapshot(1))


@pytest.mark.parametrize("when", list(When))
@pytest.mark.parametrize("fail_at", [1, 2])
def test_every_fault_of_publishing_is_told_truly_and_can_be_retried(fail_at: int, when: When) -> None:
    """FL-164: unavailable means that nothing is visible; an unknown outcome allows the same snapshot again."""
    disk = MemoryFileIO()
    faulty = FaultyFileIO(disk, fail_at=fail_at, when=when)
    io: FileIO = faulty
    store = SnapshotStore(io, PATHS)
    with pytest.raises((UnavailableError, OutcomeUnknownError)) as caught:
        store.publish(snapshot(1))
    if caught.type is UnavailableError:
        assert not disk.files
    assert store.publish(snapshot(1))
    assert store.latest() == snapshot(1)


@pytest.mark.parametrize("write", [SnapshotStore.write_latest_hint, SnapshotStore.write_earliest_hint])
def test_a_hint_that_cannot_be_written_does_not_fail_the_commit(write: Callable[[SnapshotStore, int], None]) -> None:
    disk = MemoryFileIO()
    write(SnapshotStore(FaultyFileIO(disk, fail_at=1), PATHS), 1)
    assert not disk.files
    write(SnapshotStore(disk, PATHS), 12)
    assert set(disk.files.values()) == {b"12"}  # no newline


def test_publishing_leaves_one_file(tmp_path: Any) -> None:
    store = SnapshotStore(LocalFileIO(), TablePaths(str(tmp_path)))
    assert store.publish(snapshot(1))
    assert not store.publish(snapshot(1, uuid="other"))
    assert [path.name for path in (tmp_path / "snapshot").iterdir()] == ["snapshot-1"]
    assert store.latest() == snapshot(1)


def test_a_tag_is_read_again_only_when_its_file_is_another(tmp_path: Path) -> None:
    """Streams and expiries ask for all tags again and again; a file that has just changed is never taken on trust."""
    reading, paths = FaultyFileIO(LocalFileIO()), TablePaths(str(tmp_path))
    store, path = SnapshotStore(reading, paths), Path(paths.tag("t"))  # type: ignore[arg-type]
    path.parent.mkdir()
    for number, age_s in ((1, 0), (2, 100), (3, 50)):
        path.write_text(snapshot(number).to_json())
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
        for _ in range(3):
            assert store.tag("t").id == number
        reads = [line for line in reading.log if line.startswith("read_bytes")]
        assert len(reads) == {1: 3, 2: 4, 3: 5}[number]
    path.unlink()
    assert store.find_tag("t") is None
