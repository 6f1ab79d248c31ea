"""A run of a query finds out that a newer one has taken over, and commits nothing any more."""

import pickle
from collections.abc import Callable

import pytest

from filestore.commit.committable import Committable
from filestore.commit.query_run import QueryRun
from filestore.commit.table_commit import TableCommit
from filestore.table_store import TableStore
from lsm.errors import ConflictError, CorruptDataError, TakenOverError, UnavailableError
from tests.support.tables import key_table


def store_of_a_table() -> TableStore:
    return key_table().store


def run_of(store: TableStore, run_id: str) -> QueryRun:
    return QueryRun(store=store, commit_user="query/1", run_id=run_id)


def test_the_last_run_that_began_is_the_one_that_may_commit() -> None:
    """Issue 14 item 4: the error names both runs, what was refused, and what to do."""
    store = store_of_a_table()
    first, second = run_of(store, "first"), run_of(store, "second")
    first.check("batch=0")  # before any run has written the file: that of an older version of Fluvial
    first.take_over(0)
    first.check("batch=0")
    second.take_over(0)
    second.check("batch=0")
    with pytest.raises(TakenOverError, match=r"another run of this query has taken over: .*query=query/1 batch=7 "
                       r"run=first newer_run=second fix="):  # fmt: skip
        first.check("batch=7")
    QueryRun(store=store, commit_user="another query", run_id="first").take_over(0)
    second.check("batch=1")
    pickle.loads(pickle.dumps(second)).check("batch=1")


def test_a_process_of_an_older_run_that_starts_late_takes_nothing_back() -> None:
    """The committing process of format("fluvial") is started again when it dies, under the id of its run."""
    store = store_of_a_table()
    for run_id in ("first", "second", "third"):
        run_of(store, run_id).take_over(0)
    for run_id in ("first", "second"):
        with pytest.raises(TakenOverError, match="newer_run=third"):
            run_of(store, run_id).take_over(3)
    run_of(store, "third").take_over(3)
    for number in range(50):
        run_of(store, f"later {number}").take_over(0)
    (body,) = [body for path, body in store.io.files.items() if "/query-runs/" in path]  # type: ignore[attr-defined]
    assert len(body) < 500  # bounded, however often a query is started


def test_a_commit_that_another_run_precedes_is_refused_and_leaves_nothing() -> None:
    """The pause: between reading the newest snapshot and publishing, the newer run commits."""
    store = store_of_a_table()
    old, new = run_of(store, "old"), run_of(store, "new")
    old.take_over(0)
    commit = TableCommit(store, "query/1", check=lambda: old.check("what=commit"))
    assert commit.commit(Committable(identifier=0)).snapshot is not None

    def newer_run_commits() -> None:
        new.take_over(1)
        TableCommit(store, "query/1", check=lambda: new.check("what=commit")).commit(Committable(identifier=1))

    before = publishing(store, newer_run_commits)
    with pytest.raises(TakenOverError, match="what=commit"):
        commit.commit(Committable(identifier=1))
    assert before != set(store.io.files)  # type: ignore[attr-defined]
    assert store.snapshots.ids() == [1, 2]
    lists = {path for path in store.io.files if "manifest" in path}  # type: ignore[attr-defined]
    snapshots = [store.snapshots.read(each) for each in (1, 2)]
    named = {store.paths.manifest(name) for each in snapshots for name in
             (each.base_manifest_list, each.delta_manifest_list)}  # fmt: skip
    assert lists == named
    with pytest.raises(TakenOverError):  # not "committed already": that would let the old run continue
        commit.commit(Committable(identifier=1))


def publishing(store: TableStore, meanwhile: Callable[[], None]) -> set[str]:
    """Lets something happen before the next exclusive creation."""
    io = store.io
    original = io.create_exclusive

    def create(path: str, body: bytes) -> bool:
        io.create_exclusive = original  # type: ignore[method-assign]
        meanwhile()
        return original(path, body)

    io.create_exclusive = create  # type: ignore[method-assign]
    return set(io.files)  # type: ignore[attr-defined]


def test_errors_of_a_run_that_was_taken_over_name_the_cause_and_others_stay() -> None:
    store = store_of_a_table()
    old = run_of(store, "old")
    old.take_over(0)
    with pytest.raises(UnavailableError), old.naming_the_cause("batch=1"):
        raise UnavailableError("no broker")
    run_of(store, "new").take_over(1)
    with pytest.raises(TakenOverError, match="batch=1") as found, old.naming_the_cause("batch=1"):
        raise ConflictError("fenced")
    assert isinstance(found.value.__cause__, ConflictError)


def test_a_file_that_cannot_be_decoded_is_named() -> None:
    store = store_of_a_table()
    run_of(store, "a").take_over(0)
    (path,) = [path for path in store.io.files if "/query-runs/" in path]  # type: ignore[attr-defined]
    assert path.endswith("/query-runs/query%2F1")
    store.io.replace(path, b"[]")
    with pytest.raises(CorruptDataError, match="query%2F1"):
        run_of(store, "a").check("batch=0")
