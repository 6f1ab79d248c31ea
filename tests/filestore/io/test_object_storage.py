"""Tables in an object store, against a real server that speaks S3."""

import pickle
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, TypeVar
from urllib.parse import unquote

import obstore
import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch, delete_branch, rename_branch
from filestore.branch.fast_forward import fast_forward
from filestore.branch.main_replacement import replace_main
from filestore.branch.merge import merge_branch
from filestore.catalog.catalog import FileCatalog
from filestore.io.file_io import FileIO, SystemClock
from filestore.io.object_store import ObjectStorageIO
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from lsm.errors import ConflictError, InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.stores.object_store import ACCESS_KEY, SECRET_KEY, ObjectStore
from tests.support.faults import Nth
from tests.support.races import race_of_processes
from tests.support.tables import KEY_SCHEMA, check_metadata, content, reopened, rows

T = TypeVar("T")
MIB = 1024 * 1024
OPTIONS = {"commit.max-retries": "1000", "commit.max-retry-wait": "50 ms"}


def catalog_of(store: ObjectStore, bucket: str, *, endpoint: str | None = None, **parts: Any) -> FileCatalog:
    options = {**store.options, "s3.endpoint": endpoint or store.endpoint}
    return FileCatalog(f"s3://{bucket}/lake/house/", options, **parts)


@pytest.fixture
def bucket(new_bucket: Callable[[], str]) -> str:
    return new_bucket()


@pytest.fixture
def catalog(object_store: ObjectStore, bucket: str) -> FileCatalog:
    return catalog_of(object_store, bucket)


@pytest.fixture
def files(catalog: FileCatalog) -> FileIO:
    return catalog._io


@pytest.fixture
def root(catalog: FileCatalog) -> str:
    return catalog.warehouse


@pytest.fixture
def proxy(object_store: ObjectStore) -> Iterator[FaultyProxy]:
    with faulty_proxy(object_store.endpoint) as between:
        yield between


def bucket_table(catalog: FileCatalog, **options: str) -> FileTable:
    texts = {key.replace("_", "."): value for key, value in options.items()}
    return catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", **texts})


@pytest.mark.long
def test_branches_live_in_an_object_store(catalog: FileCatalog) -> None:
    """BR-07, BR-08, BR-15, BR-16: nothing is moved, only written and deleted; and nothing is left over."""
    table = bucket_table(catalog)
    table.write(rows((1, 10)))
    create_branch(table.store, "dev", snapshot_id=1)
    catalog.table("db.t$branch_dev").write(rows((2, 20)))
    assert merge_branch(table.store, "dev").file_count == 1
    rename_branch(table.store, "dev", "fix")
    delete_branch(table.store, "fix")
    create_branch(table.store, "next", snapshot_id=2)
    catalog.table("db.t$branch_next").write(rows((3, 30)))
    assert fast_forward(table.store, "next").published == (3,)
    for main in ("next", "main"):
        replace_main(catalog.table("db.t").store, main)
        assert catalog.list_tables("db") == ["t"]
        found = catalog.table("db.t").read().to_arrow()
        assert sorted(found["id"].to_pylist()) == [1, 2, 3]
    assert catalog._io.list_names(table.store.paths.branch_dir) == []
    assert list(verify_files(catalog.table("db.t").store, progress=lambda done, of: None)) == []


def test_an_object_is_a_file_and_a_prefix_is_a_directory(files: FileIO, root: str) -> None:
    path = f"{root}/db.db/t/dt=2026%3A01/a b+ü"
    files.write_new(path, b"body")
    assert (files.read_bytes(path), files.size_bytes(path)) == (b"body", 4)
    assert files.modified_ms(path) == pytest.approx(SystemClock().now_ms(), abs=60_000)
    assert files.exists(path)
    assert not files.is_directory(path)
    assert files.exists(f"{root}/db.db/t")
    assert files.is_directory(f"{root}/db.db/t")
    assert not files.is_directory(f"{root}/db.db/t/dt")  # a prefix ends at a slash
    assert files.list_names(f"{root}/db.db/t") == ["dt=2026%3A01"]
    assert files.list_names(f"{root}/db.db/t/dt=2026%3A01") == ["a b+ü"]
    files.replace(path, b"other")
    assert files.read_bytes(path) == b"other"
    with pytest.raises(ConflictError, match="nothing was written"):
        files.write_new(path, b"third")
    assert files.read_bytes(path) == b"other"
    files.delete(path)
    assert not files.exists(f"{root}/db.db")


def test_missing_things(files: FileIO, root: str) -> None:
    path = f"{root}/missing"
    for operation in (files.read_bytes, files.size_bytes, files.modified_ms, files.open_input):
        with pytest.raises(FileNotFoundError, match=path):
            operation(path)
    assert files.list_names(path) == []
    assert not files.exists(path)
    files.delete(path)
    files.delete_tree(path)


def test_listing_and_deleting_go_on_over_pages(
    object_store: ObjectStore, bucket: str, files: FileIO, root: str
) -> None:
    """A page of S3 has 1,000 keys."""
    files.replace(f"{root}/many/n0000", b"")
    files.replace(f"{root}/many-more/x", b"")
    names = [f"n{number:04d}" for number in range(1_003)]
    for name in names:
        (object_store.data / bucket / "lake" / "house" / "many" / name).touch()
    assert files.list_names(f"{root}/many") == names
    files.delete_tree(f"{root}/many")
    assert files.list_names(root) == ["many-more"]


def test_acts_send_few_requests(object_store: ObjectStore, bucket: str, proxy: FaultyProxy) -> None:
    """Each waits for the one before it, and a store in the same region is 20 ms away."""
    table = catalog_of(object_store, bucket, endpoint=proxy.endpoint).create_table(
        "db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"}
    )
    for turn in range(4):
        table.write(rows((turn, turn)))

    def requests_of(act: Callable[[], object]) -> int:
        proxy.requests.clear()
        act()
        return len(proxy.requests)

    assert requests_of(lambda: table.write(rows((9, 9)))) <= 30
    assert (
        requests_of(lambda: table.read().to_arrow()) == 7 + 5
    )  # the snapshot, its lists, the newest manifest; each file once
    assert requests_of(table.store.snapshots.latest) == 4  # both hints, the snapshot, and that none follows


def test_an_empty_database_stays(catalog: FileCatalog) -> None:
    catalog.create_database("empty")
    assert (catalog.list_databases(), catalog.list_tables("empty")) == (["empty"], [])
    catalog.drop_database("empty")
    assert catalog.list_databases() == []


def test_of_many_claims_at_once_one_wins_with_its_whole_body(files: FileIO, root: str) -> None:
    """FL-92, FL-93: no rename, but a PUT that fails when the key is there."""
    bodies = [bytes([number]) * 50_000 for number in range(12)]
    with ThreadPoolExecutor(len(bodies)) as pool:
        won = list(pool.map(lambda body: files.create_exclusive(f"{root}/snapshot-1", body), bodies))
    assert [files.read_bytes(f"{root}/snapshot-1")] == [body for body, mine in zip(bodies, won, strict=True) if mine]


def test_large_files_are_uploaded_in_parts_and_read_by_ranges(
    object_store: ObjectStore, bucket: str, proxy: FaultyProxy
) -> None:
    files = catalog_of(object_store, bucket, endpoint=proxy.endpoint)._io
    path = f"s3://{bucket}/big"
    pieces = [bytes([number]) * MIB for number in range(20)]
    with files.open_output(path) as output:
        for piece in pieces:
            output.write(piece)
        assert output.tell() == 20 * MIB
        assert not files.exists(path)  # it appears whole
    sent = [request for request in proxy.requests if request.startswith("PUT") and "partNumber=" in request]
    assert len(sent) == 3  # of at most 8 MiB
    proxy.requests.clear()
    with files.open_input(path) as source:
        assert source.size() == 20 * MIB
        source.seek(5 * MIB - 2)
        assert source.read(4) == b"\4\4\5\5"
        assert source.read(1000) == b"\5" * 1000
        source.seek(-3, 2)
        assert source.read() == b"\x13" * 3
        assert source.read() == b""
    assert len(proxy.requests) == 3  # the first block with the size, blocks 4 and 5, and 19
    with files.open_input(path) as source:
        assert source.read() == b"".join(pieces)


@pytest.mark.long
def test_writing_a_large_file_keeps_a_few_parts_in_memory(
    object_store: ObjectStore, new_bucket: Callable[[], str]
) -> None:
    import psutil

    files = catalog_of(object_store, new_bucket())._io
    bucket = f"s3://{files.settings.bucket}"  # type: ignore[attr-defined]
    piece = b"x" * MIB
    with files.open_output(f"{bucket}/warm-up") as output:
        for _ in range(24):
            output.write(piece)
    before, highest = psutil.Process().memory_info().rss, 0
    with files.open_output(f"{bucket}/big") as output:
        for number in range(72):
            output.write(piece)
            if number % 8 == 0:
                highest = max(highest, psutil.Process().memory_info().rss)
    assert highest - before < 64 * MIB


@pytest.mark.parametrize("loses", ["loses_answer", "loses_request"])
def test_a_claim_whose_answer_or_request_got_lost_is_settled_by_looking(
    object_store: ObjectStore, bucket: str, proxy: FaultyProxy, loses: str
) -> None:
    """FL-92: the number is taken, but by us; reading it back tells."""
    files = catalog_of(object_store, bucket, endpoint=proxy.endpoint)._io
    path = f"s3://{bucket}/t/snapshot/snapshot-1"
    assert files.create_exclusive(f"s3://{bucket}/t/snapshot/snapshot-0", b"")  # asks what the store can do
    setattr(proxy, loses, proxy.lose_once("PUT", "snapshot-1"))
    assert files.create_exclusive(path, b"same")
    assert not files.create_exclusive(path, b"same")  # of the same body, but not of the same claim
    files.write_new(f"s3://{bucket}/t/manifest/m", b"1")


def test_a_claim_that_nobody_can_settle_is_of_unknown_outcome(
    object_store: ObjectStore, bucket: str, proxy: FaultyProxy
) -> None:
    files = catalog_of(object_store, bucket, endpoint=proxy.endpoint)._io
    assert isinstance(files, ObjectStorageIO)
    files = replace(files, settings=replace(files.settings, max_retries=1))
    assert files.create_exclusive(f"s3://{bucket}/t/snapshot-0", b"")
    proxy.loses_answer = lambda method, path: "snapshot-1" in path
    with pytest.raises(OutcomeUnknownError, match="snapshot-1"):
        files.create_exclusive(f"s3://{bucket}/t/snapshot-1", b"body")
    proxy.loses_answer = lambda method, path: False
    assert files.read_bytes(f"s3://{bucket}/t/snapshot-1") == b"body"


def test_every_answer_of_a_commit_may_get_lost(object_store: ObjectStore, bucket: str, proxy: FaultyProxy) -> None:
    """The rows are there once, in one snapshot, whatever was lost."""
    table = bucket_table(catalog_of(object_store, bucket, endpoint=proxy.endpoint))
    parts = ["/bucket-0/", "/manifest/manifest-", "/manifest/manifest-list-", "/snapshot/snapshot-", "/snapshot/LATEST"]
    for number, part in enumerate(parts):
        proxy.loses_answer = proxy.lose_once("PUT", part)
        table.write(rows((number, number)))
    proxy.loses_answer = lambda method, path: False
    assert content(table) == {number: number for number in range(len(parts))}
    assert table.store.snapshots.ids() == list(range(1, len(parts) + 1))
    check_metadata(table)


def test_a_table_lives_in_a_bucket(object_store: ObjectStore, bucket: str, catalog: FileCatalog) -> None:
    """FL-92, FL-93: made, written, changed, compacted, read back in time, and gone."""
    table = bucket_table(catalog)
    keys = [each["path"] for each in obstore.list(object_store.client(bucket)).collect()]
    assert keys == ["lake/house/db.db/t/schema/schema-0"]  # as every other reader of Paimon's layout expects it
    table.write(rows((1, 1), (2, 2)))
    table.write(pa.table({"id": [2, 3], "v": [20, 3]}), pa.array(["-D", "+I"]))
    table.compact(full=True)
    opened = catalog_of(object_store, bucket).table("db.t")
    assert content(opened) == {1: 1, 3: 3}
    assert opened.read(snapshot_id=1).to_arrow(filter="id = 2").to_pylist() == [{"id": 2, "v": 2}]
    check_metadata(opened)
    with pytest.raises(InvalidInputError, match=r"table exists already: table=db\.t path=s3://"):
        bucket_table(catalog)
    catalog.drop_table("db.t")
    assert obstore.list(object_store.client(bucket)).collect() == []


def test_a_table_and_its_keys_travel_to_other_processes_but_are_never_shown(catalog: FileCatalog) -> None:
    table = pickle.loads(pickle.dumps(bucket_table(catalog)))
    table.write(rows((1, 1)))
    assert content(table) == {1: 1}
    assert SECRET_KEY not in repr(table) + repr(table.store.io) + repr(catalog.options)


def append_rows(table: FileTable, writer: int, commits: int) -> None:
    for number in range(commits):
        table.with_options(OPTIONS).write(rows((writer * 1000 + number, number)))


WRITERS, COMMITS = 4, 2
EVERYTHING = {writer * 1000 + number: number for writer in range(WRITERS) for number in range(COMMITS)}


def in_threads(table: FileTable) -> None:
    with ThreadPoolExecutor(WRITERS) as pool:
        for done in [pool.submit(append_rows, table, writer, COMMITS) for writer in range(WRITERS)]:
            done.result()


def in_processes(table: FileTable) -> None:
    race_of_processes(append_rows, [(table, writer, COMMITS) for writer in range(WRITERS)])


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("race", [in_threads, in_processes])
def test_of_many_writers_no_commit_is_lost(catalog: FileCatalog, race: Callable[[FileTable], None]) -> None:
    """FL-92, FL-93: N writers of M commits leave N times M snapshots and all rows."""
    table = bucket_table(catalog, **{"num-sorted-run.stop-trigger": "100", "write-only": "true"})
    race(table)
    assert content(table) == EVERYTHING
    assert table.store.snapshots.ids() == list(range(1, WRITERS * COMMITS + 1))
    check_metadata(table)


def without_conditions(proxy: FaultyProxy, store: ObjectStore, bucket: str, *, how: str) -> None:
    if how == "answers 501":
        proxy.knows_conditions = False
    else:
        proxy.remove = lambda path: obstore.delete(store.client(bucket), unquote(path.removeprefix(f"/{bucket}/")))


class OneAtATime:
    """A lock of a catalog's own, for threads."""

    mutex = threading.Lock()

    def create(self) -> "OneAtATime":
        return self

    def run_with_lock(self, database: str, table: str, action: Callable[[], T]) -> T:
        with self.mutex:
            return action()

    def close(self) -> None:
        """Nothing is held between two runs."""


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("how", ["answers 501", "overwrites"])
def test_a_store_without_conditional_writes_is_refused_without_a_lock_and_safe_with_one(
    object_store: ObjectStore, bucket: str, proxy: FaultyProxy, how: str
) -> None:
    """FL-93, FL-96: found out before anything is made."""
    without_conditions(proxy, object_store, bucket, how=how)
    with pytest.raises(InvalidInputError, match=r"ignores If-None-Match.*fix='use a catalog with a lock"):
        bucket_table(catalog_of(object_store, bucket, endpoint=proxy.endpoint))
    assert obstore.list(object_store.client(bucket)).collect() == []
    guarded = catalog_of(object_store, bucket, endpoint=proxy.endpoint, lock_factory=OneAtATime())
    table = bucket_table(guarded, **{"write-only": "true"})
    with pytest.raises(InvalidInputError, match="exists already"):
        bucket_table(guarded)
    in_threads(table)
    assert content(table) == EVERYTHING
    assert len(table.store.snapshots.ids()) == WRITERS * COMMITS
    with pytest.raises(InvalidInputError, match="ignores If-None-Match"):
        table.with_options({"commit.lock": "conditional-put"}).write(rows((1, 1)))


@pytest.mark.parametrize("commit_lock", ["rename", "file", "jdbc"])
def test_ways_of_claiming_that_a_bucket_does_not_have_are_refused(catalog: FileCatalog, commit_lock: str) -> None:
    with pytest.raises(
        InvalidInputError, match=rf"in an object store.*commit\.lock={commit_lock} fix='use auto or con"
    ):
        bucket_table(catalog, commit_lock=commit_lock)
    assert catalog.list_databases() == []


def test_stores_that_refuse_or_do_not_answer_are_unavailable(object_store: ObjectStore, bucket: str) -> None:
    def with_options(**options: str) -> FileIO:
        given = {f"s3.{key.replace('_', '-')}": value for key, value in options.items()}
        return FileCatalog(f"s3://{bucket}/x", {**object_store.options, **given})._io

    path = f"s3://{bucket}/x"
    wrong = with_options(secret_key="not-the-key")
    with pytest.raises(UnavailableError, match="action=read") as refused:
        wrong.read_bytes(path)
    assert "not-the-key" not in str(refused.value)
    with pytest.raises(UnavailableError, match="403"):
        wrong.create_exclusive(path, b"")
    silent = ObjectStorageIO(settings=with_options(endpoint="http://127.0.0.1:1").settings)  # type: ignore[attr-defined]
    with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
        silent.read_bytes(path)
    missing = FileCatalog("s3://no-such-bucket/x", object_store.options)._io
    for use in (
        lambda: missing.replace("s3://no-such-bucket/x", b""),
        lambda: missing.read_bytes("s3://no-such-bucket/x"),
        lambda: missing.list_names("s3://no-such-bucket/x"),
        lambda: missing.create_exclusive("s3://no-such-bucket/x", b""),
    ):
        with pytest.raises(InvalidInputError, match=r"no such bucket: .*bucket=no-such-bucket .*fix="):
            use()


def test_keys_of_the_environment_reach_the_store_and_travel_with_the_table(
    object_store: ObjectStore, bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", object_store.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ACCESS_KEY)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET_KEY)
    table = pickle.dumps(bucket_table(FileCatalog(f"s3://{bucket}/w")))
    for name in ("AWS_ENDPOINT_URL", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    arrived = pickle.loads(table)
    arrived.write(rows((1, 1)))
    assert content(arrived) == {1: 1}


def test_addresses_and_options_that_cannot_be(object_store: ObjectStore) -> None:
    for warehouse in ("s3://", "s3:///x", "s3://key:secret@bucket/x", "s3://bucket/../x"):
        with pytest.raises(InvalidInputError, match="not an address in an object store"):
            FileCatalog(warehouse)
    with pytest.raises(InvalidInputError, match=r"s3\.access-key and s3\.secret-key go together"):
        FileCatalog("s3://bucket/x", {"s3.access-key": "a"})
    with pytest.raises(
        InvalidInputError, match=r"unknown option: option=s3\.acces-key did_you_mean=\['s3\.access-key'"
    ):
        FileCatalog("s3://bucket/x", {"s3.acces-key": "a"})
    with pytest.raises(InvalidInputError, match=r"s3\.endpoint=localhost:9000"):
        FileCatalog("s3://bucket/x", {"s3.endpoint": "localhost:9000"})
    assert FileCatalog("s3a://bucket//a/b/").warehouse == "s3://bucket/a/b"


def test_a_writer_that_is_paused_while_its_number_expires_commits_behind_the_others(catalog: FileCatalog) -> None:
    """A put with If-None-Match of a deleted key succeeds: the parent shows that the history is another one."""
    table = catalog.create_table(
        "db.paused", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"}
    )
    for key in (1, 2, 3):
        table.write(rows((key, key)))

    def others() -> None:
        for key in range(4, 9):
            table.write(rows((key, key)))
        list(expire_snapshots(table.store, Retention(min_count=1, max_count=1, age_ms=10**15, limit=99)))

    io = Nth(table.store.io, 1, others, of=("create_exclusive",))
    done = reopened(table, io).write(rows((42, 42)))  # type: ignore[arg-type]
    assert done.snapshot is not None
    assert (done.snapshot.id, table.store.snapshots.ids(), table.store.snapshots.hints()) == (9, [8, 9], (8, 9))
    assert {*content(table)} == {*range(1, 9), 42}
