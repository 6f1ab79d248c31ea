"""Options of commits and of what an overwrite leaves, one by one."""

import pyarrow as pa
import pytest

from filestore.commit.committable import BATCH_IDENTIFIER, Committable
from filestore.scan.live_files import LiveFiles
from filestore.snapshot.snapshot import CommitKind, SnapshotRef
from filestore.table import FileTable
from lsm.errors import ConflictError, InvalidInputError
from tests.support.tables import committable_of, content, key_table, rows


def with_options(table: FileTable, **options: str) -> FileTable:
    return table.with_options({key.replace("__", "-"): text for key, text in options.items()})


def test_users_of_single_commits_can_have_a_readable_start() -> None:
    """commit.user-prefix: of batches and of compactions, as Java writes it; nobody's name comes twice."""
    table = key_table(bucket="1", **{"commit.user-prefix": "nightly"})
    table.write(rows((1, 1)))
    table.write(rows((1, 2)))
    table.compact(full=True)
    users = [table.store.snapshots.read(each).commit_user for each in table.store.snapshots.ids()]
    assert len(set(users)) == len(users) == 3
    assert all(user.startswith("nightly_") and len(user) == len("nightly_") + 36 for user in users)


@pytest.mark.sweep
@pytest.mark.parametrize(
    ("options", "identifier", "published"),
    [
        ({}, BATCH_IDENTIFIER, False),
        ({}, 7, True),
        ({"commit.force-create-snapshot": "true"}, BATCH_IDENTIFIER, True),
        ({"snapshot.ignore-empty-commit": "false"}, BATCH_IDENTIFIER, True),
        ({"snapshot.ignore-empty-commit": "true"}, 7, False),
        ({"snapshot.ignore-empty-commit": "true", "commit.force-create-snapshot": "true"}, 7, True),
    ],
)
def test_empty_commits_are_published_as_asked(options: dict[str, str], identifier: int, published: bool) -> None:
    """commit.force-create-snapshot, snapshot.ignore-empty-commit: of a batch and of a micro-batch."""
    table = key_table(bucket="1", **options)
    table.write(rows((1, 1)))
    table.new_commit("another").commit(Committable(identifier=identifier, messages=[], base=SnapshotRef(1, "")))
    assert (table.store.snapshots.latest_id() == 2) == published
    assert content(table) == {1: 1}


def test_a_commit_gives_up_when_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """commit.timeout: between two attempts; nothing is visible, and without it all attempts are made."""
    table = key_table(
        bucket="1", **{"commit.timeout": "35 ms", "commit.min-retry-wait": "10 ms", "commit.max-retry-wait": "10 ms"}
    )
    lost = []
    monkeypatch.setattr(type(table.store.snapshots), "publish", lambda *_: bool(lost.append(1)))
    with pytest.raises(ConflictError, match=r"took too long: .*lost_races=\d passed_ms=\d+ commit.timeout=35 ms"):
        table.new_commit("u").commit(committable_of(table, 1, rows((1, 1))))
    assert 2 <= len(lost) < 11
    lost.clear()
    patient = with_options(table, **{"commit.timeout": "1 h"})
    with pytest.raises(ConflictError, match="lost 11 commit races"):
        patient.new_commit("u").commit(committable_of(table, 1, rows((1, 1))))


def test_commits_of_others_after_the_last_safe_snapshot_are_not_followed() -> None:
    """commit.strict-mode.last-safe-snapshot: compactions and overwrites always, appends when rows are replaced."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    strict = with_options(table, **{"commit.strict-mode.last-safe-snapshot": "1"})
    table.write(rows((2, 2)))
    strict.write(rows((3, 3)))
    with pytest.raises(InvalidInputError, match=r"snapshot=3 kind=APPEND .*last-safe-snapshot=1"):
        strict.overwrite(rows((9, 9)))
    table.compact(full=True)
    with pytest.raises(InvalidInputError, match=r"snapshot=4 kind=COMPACT .*last-safe-snapshot=1"):
        strict.write(rows((4, 4)))
    with_options(table, **{"commit.strict-mode.last-safe-snapshot": "4"}).write(rows((4, 4)))
    assert content(table) == {1: 1, 2: 2, 3: 3, 4: 4}


@pytest.mark.parametrize("switch", ["true", "false"])
def test_what_an_overwrite_writes_is_read_without_merging(switch: str) -> None:
    """overwrite-upgrade: on the top level at once, where no key is there twice; streams and later rows are as ever."""
    table = key_table(bucket="2", **{"overwrite-upgrade": switch})
    table.write(rows(*((number, 0) for number in range(20))))
    table.overwrite(rows(*((number, 1) for number in range(10))))
    live = LiveFiles.latest(table.store)
    levels = {file.level for key in live.buckets() for file in live.files(key)}
    assert levels == {5 if switch == "true" else 0}
    assert table.store.snapshots.read(2).commit_kind is CommitKind.OVERWRITE
    table.write(rows((3, 7)))
    table.write(rows((4, 4)), pa.array(["-D"]))
    expected = {number: 1 for number in range(10) if number != 4} | {3: 7}
    assert content(table) == expected
    table.compact(full=True)
    assert content(table) == expected
    assert content(table, snapshot_id=1) == dict.fromkeys(range(20), 0)


def test_an_overwrite_with_deletes_or_overlapping_files_waits_for_a_compaction() -> None:
    """A delete on the top level would never go; overlapping files are no run."""
    table = key_table(bucket="1")

    def overwritten(*batches: tuple[pa.Table, list[str]]) -> list[int]:
        """The levels of the files; each batch is one."""
        writer = table.new_write(max_sequence_numbers={}, budget_bytes=1)
        for batch, kinds in batches:
            writer.write(batch, pa.array(kinds))
        committable = Committable(identifier=BATCH_IDENTIFIER, messages=writer.prepare_commit())
        table.commit_overwrite(table.new_commit(table.store.new_commit_user()), committable)
        live = LiveFiles.latest(table.store)
        return [file.level for key in live.buckets() for file in live.files(key)]

    assert overwritten((rows((1, 1), (5, 5)), ["+I", "+I"]), (rows((6, 6)), ["+I"])) == [5, 5]
    assert overwritten((rows((1, 1), (5, 5)), ["+I", "+I"]), (rows((5, 6), (9, 9)), ["+I", "+I"])) == [0, 0]
    assert content(table) == {1: 1, 5: 6, 9: 9}
    assert overwritten((rows((1, 1), (2, 2)), ["+I", "-D"])) == [0]
    assert content(table) == {1: 1}


@pytest.mark.parametrize("upgrade", ["true", "false"])
@pytest.mark.parametrize("write_only", ["true", "false"])
@pytest.mark.parametrize(
    "kind", [{"merge-engine": "first-row"}, {"deletion-vectors.enabled": "true"}, {"deletion-vectors.bitmap64": "true"}]
)
def test_an_overwrite_is_seen_at_once_where_level_0_is_not(kind: dict[str, str], write_only: str, upgrade: str) -> None:
    """Whoever compacts, and whether files overlap: else the table would be empty until then."""
    vectors = {"deletion-vectors.enabled": "true"} if "deletion-vectors.bitmap64" in kind else {}
    options = {**kind, **vectors, "write-only": write_only, "overwrite-upgrade": upgrade, "write-buffer-size": "1 b"}
    table = key_table(bucket="1", **options)
    table.write(rows((1, 1)))
    table.compact(full=True)
    table.overwrite(rows((2, 2), (3, 3), (2, 2)))
    assert content(table) == {2: 2, 3: 3}
    table.overwrite(rows((4, 4)))
    assert content(table) == {4: 4}
    table.compact(full=True)
    assert content(table) == {4: 4}
