"""Which names tags and branches may have, and what becomes of others that exist already."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from filestore.branch.branches import create_branch, delete_branch, list_branches, rename_branch
from filestore.catalog.catalog import FileCatalog
from filestore.layout.version_names import LONGEST_BRANCH, LONGEST_TAG, check_branch_name, check_tag_name
from filestore.maintenance.orphans import find_orphans
from filestore.refs.versions import Version, parse_version
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag, list_tags, rename_tag, replace_tag
from lsm.errors import InvalidInputError
from tests.support.tables import KEY_SCHEMA, content, copied, key_table, rows

CHECKS: dict[str, Callable[[str], None]] = {"tag": check_tag_name, "branch": check_branch_name}
WORDS = ["latest", "LATEST", "earliest", "main", "Main", "snapshot", "savepoint", "timestamp", "watermark"]
NUMBERS = ["7", " 12 ", "00", "٣"]
NO_FILE = ["", " ", " a", "a ", "a/b", "a\\b", "a:b", "a,b", "a\nb", "a\tb", "a\0b", "\udc80", ".a"]
NO_NAMES = {
    "tag": [*WORDS, *NUMBERS, *NO_FILE, "success-file", "snapshot.1", "Snapshot.x", "savepoint.1", "savepoint-1",
            "merged-1", "Merged-12",
            "timestamp.5", "watermark.5", "main.eod", "a" * (LONGEST_TAG + 1), "日" * 54],
    "branch": [*WORDS, *NUMBERS, *NO_FILE, "a.b", "a$b", "a*", "a?", "a" * (LONGEST_BRANCH + 1)],
}  # fmt: skip
NAMES = [
    "a",
    "eod",
    "2026-01-31 07",
    "20260131 07",
    "v1",
    "[ab]",
    'a"b',
    "a%20b",
    "a b",
    "ü—日本",
    "a#b",
    "a;b",
    "a+b=c",
]


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, names in NO_NAMES.items() for name in names])
def test_a_name_that_means_something_else_or_is_no_file_name_is_refused(kind: str, name: str) -> None:
    """TAG-13, TAG-14, BR-41; issue 16 point 4."""
    with pytest.raises(InvalidInputError, match=kind):
        CHECKS[kind](name)


@pytest.mark.parametrize("kind", CHECKS)
@pytest.mark.parametrize("wrong", [None, 5, b"a"])
def test_what_is_no_text_is_no_name(kind: str, wrong: object) -> None:
    with pytest.raises(InvalidInputError, match=f"a {kind} name is a text: {kind}="):
        CHECKS[kind](wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "name", [*NAMES, "1.5", "main2", "savepoint-x", "merged-x", "merged", "snapshots", "latest-eod", "dev.eod", "a.b"]
)
def test_every_other_name_is_a_word_for_its_tag(name: str) -> None:
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_tag(table.store, name)
    table.write(rows((1, 2)))
    assert parse_version(table.store, name) == Version(tag=name)
    assert (content(table, version=name), content(table)) == ({1: 1}, {1: 2})
    check_tag_name(name)


@pytest.mark.parametrize("name", NAMES)
def test_every_other_name_is_a_word_for_its_branch(name: str) -> None:
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_branch(table.store, name, snapshot_id=1)
    table.write(rows((1, 2)))
    assert (content(table, version=f"{name}.latest"), content(table)) == ({1: 1}, {1: 2})


def test_the_longest_names_fit_a_real_file_system_whatever_is_done(tmp_path: Path) -> None:
    table = FileCatalog(str(tmp_path)).create_table(
        "db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", "tag.create-success-file": "true"}
    )
    for value in (1, 2):
        table.write(rows((1, value)))
    tag, branch = "日" * (LONGEST_TAG // 3) + "a" * (LONGEST_TAG % 3), "b" * LONGEST_BRANCH
    create_tag(table.store, tag, snapshot_id=1)
    replace_tag(table.store, tag, snapshot_id=2)
    rename_tag(table.store, tag, "short")
    rename_tag(table.store, "short", tag)
    create_branch(table.store, branch, snapshot_id=1)
    rename_branch(table.store, branch, "b")
    rename_branch(table.store, "b", branch)
    assert content(table.on_branch(branch)) == {1: 1}
    delete_branch(table.store, branch)
    delete_tag(table.store, tag)
    assert table.store.snapshots.tag_names() == []
    assert find_orphans(table.store, before_ms=2**62) == []


@pytest.mark.parametrize("name", ["latest", "a:b", "a,b", "snapshot.1", "a\\b", "x" * 200, "5"])
def test_what_exists_under_another_name_is_listed_read_renamed_and_deleted(name: str) -> None:
    """Tags and branches of older versions, and of other engines."""
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    create_tag(table.store, "eod")
    create_branch(table.store, "dev", tag="eod")
    files = table.store.io.files  # type: ignore[attr-defined]
    files[table.store.paths.tag(name)] = files[table.store.paths.tag("eod")]
    old, new = f"{table.store.paths.branch_dir}/branch-dev/", f"{table.store.paths.branch_dir}/branch-{name}/"
    for path in [path for path in files if path.startswith(old)]:
        files[path.replace(old, new)] = files[path]
    table.write(rows((1, 2)))
    assert [tag.name for tag in list_tags(table.store)] == sorted([name, "eod"])
    assert [branch.name for branch in list_branches(table.store)] == sorted([name, "dev"])
    assert content(table, tag=name) == content(table.on_branch(name)) == {1: 1}
    rename_branch(table.store, name, "better")
    delete_branch(table.store, "better")
    rename_tag(table.store, name, "good")
    rename_tag(table.store, "good", "fine")
    files[table.store.paths.tag(name)] = files[table.store.paths.tag("fine")]
    delete_tag(table.store, name)
    assert table.store.snapshots.tag_names() == ["eod", "fine"]


PARTS = ["snapshot", "savepoint", "timestamp", "main", "latest", "dev", "eod", ".", "-", "1", "07", " ", ":", ",", "/"]
ANY_NAME = st.text(max_size=6) | st.lists(st.sampled_from(PARTS), max_size=4).map("".join)


@given(ANY_NAME)
def test_any_text_is_refused_without_a_trace_or_means_its_tag_and_no_other_state(name: str) -> None:
    table = _copy()
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    try:
        create_tag(table.store, name, snapshot_id=1)
    except InvalidInputError:
        assert table.store.io.files == before  # type: ignore[attr-defined]
        return
    assert parse_version(table.store, name) == Version(tag=name)
    assert table.store.snapshots.tag_names() == [name]
    assert content(table, version=name) == {1: 1}
    assert parse_version(table.store, f"main.{name}") == Version(tag=name, branch="main")
    delete_tag(table.store, name)
    assert table.store.io.files == before  # type: ignore[attr-defined]


@pytest.mark.sweep
@given(ANY_NAME)
def test_any_text_is_refused_without_a_trace_or_means_its_branch_and_no_other_state(name: str) -> None:
    table = _copy()
    before = dict(table.store.io.files)  # type: ignore[attr-defined]
    try:
        create_branch(table.store, name, snapshot_id=1)
    except InvalidInputError:
        assert table.store.io.files == before  # type: ignore[attr-defined]
        return
    for word in ("latest", "1", f"branch-{name}"):
        assert content(table, version=f"{name}.{word}") == {1: 1}
    assert [each.name for each in list_branches(table.store)] == [name]
    delete_branch(table.store, name)
    assert table.store.io.files == before  # type: ignore[attr-defined]


def _copy() -> FileTable:
    return copied(_filled())


@cache
def _filled() -> FileTable:
    table = key_table(bucket="1")
    for value in (1, 2):
        table.write(rows((1, value)))
    return table
