"""A table in an Iceberg REST catalog: what the server says is the table, whatever happened to either of them."""

import random
import socket
from collections.abc import Callable
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError

from filestore.branch.branches import create_branch
from filestore.catalog.catalog import FileCatalog
from filestore.evolution.schema_change import AddColumn
from filestore.iceberg import rest_catalog
from filestore.iceberg.metadata import Metadata
from filestore.iceberg.places import iceberg_state
from filestore.iceberg.rest_catalog import Announcement, announce_version, announcement
from filestore.maintenance.rollback import plan_rollback, roll_back
from filestore.table import FileTable
from filestore.tag.tags import create_tag, delete_tag
from filestore.types.data_types import DataType
from lsm.errors import UnavailableError
from tests.stores.faulty_proxy import faulty_proxy
from tests.support.iceberg import metadata_json, metadata_path, own_rows, sorted_tuples
from tests.support.tables import expire_all_but

pytestmark = [pytest.mark.store, pytest.mark.xdist_group("iceberg-rest")]

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
_names = count()


@pytest.fixture
def new_rest_table(tmp_path: Path, iceberg_rest: str) -> Callable[..., FileTable]:
    """Makes tables, each in a namespace that no other test uses."""

    def make(*, uri: str = iceberg_rest, **options: str) -> FileTable:
        given = {"metadata.iceberg.storage": "rest-catalog", "metadata.iceberg.rest.uri": uri, "bucket": "1"}
        name = f"lake{next(_names)}.t"
        return FileCatalog(str(tmp_path)).create_table(name, SCHEMA, options={**given, "bucket-key": "id", **options})

    return make


def several(*ids: int) -> pa.Table:
    return pa.table({"id": list(ids), "v": [f"v{each}" for each in ids]}, schema=SCHEMA)


def check_server(uri: str, table: FileTable, name: str | None = None, *, every: bool = True) -> None:
    """The server has our snapshots and refs, and pyiceberg reads our rows, by each of them or by the newest."""
    there, ours = RestCatalog("reader", uri=uri).load_table(name or table.name), metadata_json(table)
    assert [each.snapshot_id for each in there.metadata.snapshots] == [
        each["snapshot-id"] for each in ours["snapshots"]
    ]
    assert {name: ref.snapshot_id for name, ref in there.metadata.refs.items()} == {
        name: ref["snapshot-id"] for name, ref in ours["refs"].items()
    }
    assert [field.name for field in there.schema().fields] == [field.name for field in table.store.schema.fields]
    assert sorted_tuples(there.scan().to_arrow()) == own_rows(table)
    if "dev" in ours["refs"]:
        found = there.scan(snapshot_id=ours["refs"]["dev"]["snapshot-id"]).to_arrow()
        assert sorted_tuples(found) == own_rows(table.on_branch("dev"))
    tags = {table.store.snapshots.tag(each).id: each for each in table.store.snapshots.tag_names()}
    for each in Metadata(ours).main if every else ():
        at = each["snapshot-id"]
        assert sorted_tuples(there.scan(snapshot_id=at).to_arrow()) == own_rows(table, at, tag=tags.get(at)), at


@pytest.mark.sampled(1)
@pytest.mark.parametrize("version", ["2", "3"])
def test_the_server_follows_a_random_history(
    new_rest_table: Callable[..., FileTable], iceberg_rest: str, version: str, tmp_path: Path
) -> None:
    """Issue 20 point 1: writes, compaction, tags, a branch, expiry, a new column, a rollback, the table made again."""
    chance, catalog = random.Random(int(version)), FileCatalog(str(tmp_path))
    table = new_rest_table(**{"metadata.iceberg.format-version": version})
    acts = ["tag", "tag", "compact", "write", "rollback", "untag", "expire", "alter"]
    chance.shuffle(acts)
    for turn, act in enumerate(["write", "tag", *acts, "branch", "compact", "tag"]):
        match act:
            case "write":
                table.write(several(*chance.sample(range(100), 3)))
            case "compact":
                table.compact(full=True)
            case "tag":
                create_tag(table.store, f"tag{turn}")
            case "branch":
                create_branch(table.store, "dev", snapshot_id=table.store.snapshots.latest_id())
                table.on_branch("dev").write(several(1000))
                check_server(iceberg_rest, table, every=False)
            case "untag" if names := table.store.snapshots.tag_names():
                delete_tag(table.store, chance.choice(names))
            case "expire":
                expire_all_but(table, 2)
            case "rollback" if len(ids := table.store.snapshots.ids()) > 1:
                roll_back(table.store, plan_rollback(table.store, table.store.snapshots.read(ids[-2])))
            case "alter":
                catalog.alter_table(table.name, [AddColumn(path=(f"c{turn}",), type=DataType(root="INT"))])
                table = catalog.table(table.name)
        table.write(several(turn))  # what readers see follows with a commit
        check_server(iceberg_rest, table, every=act == "branch" or turn == len(acts))
    options = {key: value for key, value in table.store.schema.options.items() if key.startswith("metadata.")}
    catalog.drop_table(table.name)
    table = catalog.create_table(table.name, SCHEMA, options=options)
    table.write(several(7))
    check_server(iceberg_rest, table)


def test_a_commit_does_not_wait_for_a_server_that_is_away(
    new_rest_table: Callable[..., FileTable], iceberg_rest: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The commit stands, what is behind is said, and the next commit makes up for it."""
    with faulty_proxy(iceberg_rest) as proxy:
        table = new_rest_table(uri=proxy.endpoint)
        table.write(several(1))
        proxy.loses_request = lambda method, path: True
        table.write(several(2))
        state = iceberg_state(table.store)
        assert state is not None
        assert (state.shown, state.behind) == (1, 1)
        assert f"metadata.iceberg.rest.uri={proxy.endpoint}" in caplog.text
        proxy.loses_request = lambda method, path: False
        table.write(several(3))
        check_server(iceberg_rest, table)
        proxy.loses_answer = proxy.lose_once("POST", "/tables/")
        table.write(several(4))  # the server has it, and nobody knows
        table.write(several(5))
        check_server(iceberg_rest, table)


def test_a_server_that_does_not_answer_holds_no_commit_for_long(
    new_rest_table: Callable[..., FileTable], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(rest_catalog, "_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        table = new_rest_table(uri=f"http://127.0.0.1:{deaf.getsockname()[1]}")
        table.write(several(1))
    assert own_rows(table) == [(1, "v1")]
    assert "ReadTimeout" in caplog.text or "timed out" in caplog.text


def test_a_login_is_that_of_pyicebergs_configuration(
    new_rest_table: Callable[..., FileTable],
    iceberg_rest: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Issue 22 point 5: a login never lies in a table."""
    monkeypatch.setenv("PYICEBERG_CATALOG__FLUVIAL__TOKEN", "never-shown")
    found: set[str | None] = set()
    with faulty_proxy(iceberg_rest) as proxy:

        def seen(_method: str, _path: str, headers: Any) -> Any:
            found.add(dict(headers).get("Authorization"))
            return headers

        proxy.to_store = seen
        new_rest_table(uri=proxy.endpoint).write(several(1))
        monkeypatch.setenv("PYICEBERG_CATALOG__FLUVIAL__URI", iceberg_rest)
        new_rest_table(uri=proxy.endpoint).write(several(1))
        assert found == set(), "a table's address gets no login that the user gave for another, or for none"
        assert caplog.text.count("is not for this address") == 2
        monkeypatch.setenv("PYICEBERG_CATALOG__FLUVIAL__URI", f"{proxy.endpoint}/")
        table = new_rest_table(uri=proxy.endpoint)
        table.write(several(1))
    assert found == {"Bearer never-shown"}
    root = Path(table.store.paths.root)
    assert not [each for each in root.rglob("*") if each.is_file() and b"never-shown" in each.read_bytes()]


def test_another_name_in_the_catalog(new_rest_table: Callable[..., FileTable], iceberg_rest: str) -> None:
    table = new_rest_table(**{"metadata.iceberg.database": "analysts", "metadata.iceberg.table": "orders"})
    table.write(several(1))
    check_server(iceberg_rest, table, "analysts.orders")
    with pytest.raises(NoSuchTableError):
        RestCatalog("reader", uri=iceberg_rest).load_table(table.name)


def test_a_late_writer_takes_nothing_back_and_others_commits_do_not_stay(
    new_rest_table: Callable[..., FileTable], iceberg_rest: str
) -> None:
    """The table is the truth: what came into the catalog by another engine goes with the next commit."""
    table = new_rest_table()
    table.write(several(1))
    late, path = Metadata(metadata_json(table)), str(metadata_path(table))
    table.write(several(2))
    announce_version(table.store, late, path)
    check_server(iceberg_rest, table)
    RestCatalog("other", uri=iceberg_rest).load_table(table.name).append(several(99))
    table.write(several(3))
    check_server(iceberg_rest, table)


def test_an_error_names_the_server(new_rest_table: Callable[..., FileTable], iceberg_rest: str) -> None:
    table = new_rest_table()
    table.write(several(1))
    shown, path = Metadata(metadata_json(table)), str(metadata_path(table))
    away = new_rest_table(uri="http://127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"metadata\.iceberg\.rest\.uri=http://127\.0\.0\.1:1 .*fix='see that"):
        announce_version(away.store, shown, path)


def metadata(*ids: int, **more: Any) -> dict[str, Any]:
    snapshots = [{"snapshot-id": each, "summary": {"fluvial.snapshot": f"s{each}"}} for each in ids]
    refs = {"main": {"type": "branch", "snapshot-id": ids[-1]}}
    return {
        "table-uuid": "u",
        "schemas": [0],
        "snapshots": snapshots,
        "current-snapshot-id": ids[-1],
        "refs": refs,
    } | more


def tagged(body: dict[str, Any], **tags: int) -> dict[str, Any]:
    found = deepcopy(body)
    found["refs"] |= {name: {"type": "tag", "snapshot-id": at} for name, at in tags.items()}
    return found


@pytest.mark.parametrize(
    ("known", "shown", "new", "refs", "refs_gone", "gone"),
    [
        (metadata(1, 2), metadata(1, 2), [], [], [], []),
        (metadata(1, 2), metadata(1, 2, 3, 4), [3, 4], ["main"], [], []),
        (metadata(1, 2, 3), metadata(3, 4), [4], ["main"], [], [1, 2]),
        (tagged(metadata(1, 2), a=1, b=1), tagged(metadata(1, 2), b=2, c=1), [], ["b", "c"], ["a"], []),
    ],
)
def test_a_server_gets_what_is_new(
    known: dict[str, Any], shown: dict[str, Any], new: list[int], refs: list[str], refs_gone: list[str], gone: list[int]
) -> None:
    found = announcement(known, shown)
    assert isinstance(found, Announcement)
    assert [each["snapshot-id"] for each in found.snapshots] == new
    assert (sorted(found.refs), list(found.refs_gone), list(found.snapshots_gone)) == (refs, refs_gone, gone)
    assert found.is_empty == (known == shown)


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (metadata(1, 2), metadata(1, 2, 3, **{"table-uuid": "other"})),
        (metadata(1, 2), metadata(1, 2, 3, schemas=[0, 1])),
        (metadata(1, 2, 3), metadata(1, 2)),  # rolled back
        (metadata(1, 3), metadata(1, 2, 3)),
        (metadata(1, 2), metadata(3)),
        (metadata(1), {**metadata(1, 2), "snapshots": [{"snapshot-id": 1, "summary": {}}, *metadata(2)["snapshots"]]}),
    ],
)
def test_another_history_is_taken_over_whole(known: dict[str, Any], shown: dict[str, Any]) -> None:
    assert announcement(known, shown) is None
