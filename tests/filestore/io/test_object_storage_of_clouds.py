"""Tables in Google's and Azure's stores: the laws and faults of S3 in a sample, over their protocols.

Azure's is Azurite. Google's is S3Proxy behind a translation of headers (see tests/stores/google_store.py), so what it
shows of Google is which requests are sent, and that the answers its documentation names are understood.
"""

import pickle
import re
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace

import obstore
import pytest
from deltalake import DeltaTable

from filestore.catalog.catalog import FileCatalog
from filestore.catalog.warehouse import warehouse_path
from filestore.export.delta import export_delta
from filestore.export.parts import open_state
from filestore.export.result import ExportPlace
from filestore.io.file_io import SystemClock
from filestore.io.object_clients import AzureSettings, client_of
from filestore.io.object_store import ObjectStorageIO
from filestore.options.catalog_options import CatalogOptions, from_environment
from lsm.errors import InvalidInputError, OutcomeUnknownError, UnavailableError
from tests.stores.azurite import ACCOUNT, ACCOUNT_KEY, AzureEmulator, endpoint_of_account
from tests.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.stores.google_store import TOKEN, as_google, as_s3
from tests.stores.object_store import ObjectStore
from tests.support.tables import KEY_SCHEMA, check_metadata, content, rows

MIB = 1024 * 1024
CLOUDS = pytest.mark.parametrize("cloud", ["gs", "abfss"], indirect=True)
PARTS = ("/bucket-0/", "/manifest/manifest-", "/manifest/manifest-list-", "/snapshot/snapshot-", "/snapshot/LATEST")


@dataclass(frozen=True, kw_only=True)
class Cloud:
    """A bucket of one cloud behind a proxy that can lose requests and answers."""

    root: str  # of the bucket
    options: Mapping[str, str]
    secret: str
    proxy: FaultyProxy
    condition: tuple[str, str]
    part: str  # of the address of one part of an upload

    def catalog(self, **more: str) -> FileCatalog:
        return FileCatalog(f"{self.root}/lake", {**self.options, **more})

    @property
    def files(self) -> ObjectStorageIO:
        found = self.catalog()._io
        assert isinstance(found, ObjectStorageIO)
        return found


@pytest.fixture
def cloud(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    with (google if request.param == "gs" else azure)(request) as found:
        yield found


@contextmanager
def google(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    store: ObjectStore = request.getfixturevalue("object_store")
    with faulty_proxy(store.endpoint) as proxy:
        proxy.to_store, proxy.to_client = as_s3, as_google
        yield Cloud(
            root=f"gs://{request.getfixturevalue('new_bucket')()}",
            options={"gs.endpoint": proxy.endpoint, "gs.token": TOKEN},
            secret=TOKEN,
            proxy=proxy,
            condition=("x-goog-if-generation-match", "0"),
            part="partNumber=",
        )


@contextmanager
def azure(request: pytest.FixtureRequest) -> Iterator[Cloud]:
    store: AzureEmulator = request.getfixturevalue("azure_store")
    container: str = request.getfixturevalue("new_container")()
    with faulty_proxy(store.endpoint) as proxy:
        reached = {"azure.endpoint": endpoint_of_account(proxy.endpoint), "azure.account-key": ACCOUNT_KEY}
        is_short = request.param == "az"
        yield Cloud(
            root=f"az://{container}" if is_short else f"abfss://{container}@{ACCOUNT}.dfs.core.windows.net",
            options={**reached, **({"azure.account": ACCOUNT} if is_short else {})},
            secret=ACCOUNT_KEY,
            proxy=proxy,
            condition=("If-None-Match", "*"),
            part="comp=block&",
        )


@pytest.mark.sweep
@pytest.mark.sampled(1)
@CLOUDS
def test_a_table_lives_in_a_bucket_of_a_cloud(cloud: Cloud) -> None:
    """FL-92, FL-93: made, written, changed, compacted, opened elsewhere, gone; its login is not shown and not kept."""
    table = cloud.catalog().create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(rows((1, 10), (2, 20)))
    table.write(rows((2, 21), (3, 30)))
    table.compact(full=True)
    arrived = pickle.loads(pickle.dumps(table))
    arrived.write(rows((4, 40)))
    opened = cloud.catalog().table("db.t")
    assert content(opened) == {1: 10, 2: 21, 3: 30, 4: 40}
    assert opened.read(snapshot_id=1).to_arrow(filter="id = 2").to_pylist() == [{"id": 2, "v": 20}]
    check_metadata(opened)
    assert cloud.secret not in repr(table) + repr(table.store.io) + repr(cloud.catalog().options)
    store = client_of(cloud.files.settings)
    keys = [each["path"] for page in obstore.list(store) for each in page]
    assert {key.split("/")[3] for key in keys} == {"bucket-0", "manifest", "schema", "snapshot"}
    assert not any(cloud.secret.encode() in bytes(store.get(key).bytes()) for key in keys)
    assert {*cloud.proxy.conditions} == {cloud.condition}
    cloud.catalog().drop_table("db.t")
    assert obstore.list(store).collect() == []


@pytest.mark.sweep
@pytest.mark.sampled(1)
@CLOUDS
def test_files_directories_and_parts_are_those_of_a_file_system(cloud: Cloud) -> None:
    """Names with every sign, pages of listings, missing files, uploads in parts and reads by ranges."""
    files, root = cloud.files, cloud.root
    path = f"{root}/db.db/t/dt=2026%3A01/a b+ü"
    files.write_new(path, b"body")
    assert (files.read_bytes(path), files.size_bytes(path)) == (b"body", 4)
    assert files.list_names(f"{root}/db.db/t") == ["dt=2026%3A01"]
    assert files.list_names(f"{root}/db.db/t/dt=2026%3A01") == ["a b+ü"]
    assert not files.is_directory(f"{root}/db.db/t/dt")
    files.make_directory(f"{root}/empty.db")
    assert files.list_names(root) == ["db.db", "empty.db"]
    for read in (files.read_bytes, files.size_bytes, files.modified_ms, files.open_input):
        with pytest.raises(FileNotFoundError, match=f"{root}/missing"):
            read(f"{root}/missing")
    assert files.list_names(f"{root}/missing") == []
    files.replace(f"{root}/nothing", b"")  # stores refuse a range of it
    with files.open_input(f"{root}/nothing") as source:
        assert (source.size(), source.read()) == (0, b"")
    assert (files.is_file(f"{root}/nothing"), files.is_file(f"{root}/db.db")) == (True, False)
    assert (files.exists(f"{root}/nothing"), files.exists(f"{root}/db.db")) == (True, True)
    pieces = [bytes([number]) * MIB for number in range(18)]
    with files.open_output(f"{root}/big") as output:
        for piece in pieces:
            output.write(piece)
        assert not files.exists(f"{root}/big")  # it appears whole
    assert sum(sent.startswith("PUT") and cloud.part in sent for sent in cloud.proxy.requests) == 3
    with files.open_input(f"{root}/big") as source:
        source.seek(5 * MIB - 2)
        assert source.read(4) == b"\4\4\5\5"
        source.seek(0)
        assert source.read() == b"".join(pieces)
    files.delete(f"{root}/nothing")
    for name in ("db.db", "empty.db"):
        files.delete_tree(f"{root}/{name}")
    files.delete(f"{root}/missing")
    assert files.list_names(root) == ["big"]


@pytest.mark.sweep
@pytest.mark.parametrize("cloud", ["gs", "az"], indirect=True)
def test_of_many_creators_one_wins(cloud: Cloud) -> None:
    """FL-92, FL-93: the condition of the cloud is sent, and the refusal understood."""
    files, path = cloud.files, f"{cloud.root}/snapshot-1"
    bodies = [bytes([number]) * 10_000 for number in range(8)]
    with ThreadPoolExecutor(len(bodies)) as pool:
        won = list(pool.map(lambda body: files.create_exclusive(path, body), bodies))
    assert [files.read_bytes(path)] == [body for body, mine in zip(bodies, won, strict=True) if mine]


@pytest.mark.sweep
@CLOUDS
def test_lost_requests_and_answers_leave_each_row_once(cloud: Cloud) -> None:
    """The faults of S3: what a commit sends or hears gets lost at each place, and one that no one can settle."""
    table = cloud.catalog().create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for number, part in enumerate(PARTS):
        setattr(cloud.proxy, "loses_request" if number % 2 else "loses_answer", cloud.proxy.lose_once("PUT", part))
        table.write(rows((number, number)))
    assert cloud.proxy.lost == len(PARTS)
    assert content(table) == {number: number for number in range(len(PARTS))}
    assert table.store.snapshots.ids() == list(range(1, len(PARTS) + 1))
    files = replace(cloud.files, settings=replace(cloud.files.settings, max_retries=0))  # type: ignore[type-var]
    cloud.proxy.loses_answer = lambda method, path: "snapshot-x" in path
    with pytest.raises(OutcomeUnknownError, match="snapshot-x"):
        files.create_exclusive(f"{cloud.root}/snapshot-x", b"body")
    cloud.proxy.loses_answer = lambda method, path: False
    assert files.read_bytes(f"{cloud.root}/snapshot-x") == b"body"


@pytest.mark.sweep
@CLOUDS
def test_a_store_that_ignores_conditions_is_refused_without_a_lock(cloud: Cloud) -> None:
    """FL-93, FL-96: found out before anything is created."""
    cloud.proxy.knows_conditions = False
    with pytest.raises(InvalidInputError, match=rf"ignores {cloud.condition[0]}.*fix='use a catalog with a lock"):
        cloud.catalog().create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    cloud.proxy.knows_conditions = True
    assert cloud.files.list_names(cloud.root) == []


@pytest.mark.sweep
@CLOUDS
def test_wrong_logins_and_missing_buckets_are_named(cloud: Cloud) -> None:
    secret = "bm90LXRoZS1rZXk="
    missing = re.sub(r"//[^@]*?(?=@|$)", "//no-such-bucket", cloud.root)
    with pytest.raises(InvalidInputError, match=r"no such bucket: .*bucket=no-such-bucket.*fix="):
        FileCatalog(f"{missing}/x", cloud.options)._io.replace(f"{missing}/x/y", b"")
    if cloud.root.startswith("az"):
        for login in ("account-key", "sas-token"):
            given = {**cloud.options, f"azure.{login}": f"sig={secret}" if login == "sas-token" else secret}
            if login == "sas-token":
                del given["azure.account-key"]
            with pytest.raises(UnavailableError, match="403") as refused:
                FileCatalog(f"{cloud.root}/x", given)._io.read_bytes(f"{cloud.root}/x/y")
            assert secret not in str(refused.value)
            assert "bm90LXRoZS1rZXk" not in str(refused.value)


def test_the_environment_has_one_login_of_each_cloud() -> None:
    """By the names of gcloud's and Azure's own tools; what a catalog was given comes first, and is not mixed."""
    environment = {
        "GOOGLE_APPLICATION_CREDENTIALS": "/f.json",
        "STORAGE_EMULATOR_HOST": "http://g",
        "AZURE_STORAGE_ACCOUNT": "a",
        "AZURE_STORAGE_KEY": "k",
        "AZURE_STORAGE_SAS_TOKEN": "s",
        "AZURE_TENANT_ID": "t",
        "AZURE_CLIENT_ID": "c",
        "AZURE_CLIENT_SECRET": "x",
    }
    places = {"gs.endpoint": "http://g", "azure.account": "a"}
    assert from_environment({}, environment) == {
        **places,
        "gs.credentials-file": "/f.json",
        "azure.account-key": "k",
    }
    given = {"gs.token": "mine", "azure.client-id": "mine"}
    assert from_environment(given, environment) == places
    del environment["AZURE_STORAGE_KEY"], environment["AZURE_STORAGE_SAS_TOKEN"]
    found = from_environment({}, environment)
    assert {key: found[key] for key in found if key.startswith("azure.")} == {
        "azure.account": "a",
        "azure.tenant-id": "t",
        "azure.client-id": "c",
        "azure.client-secret": "x",
    }
    aliased = CatalogOptions.parse({"fs.gs.auth.service.account.json.keyfile": "/paimon.json"})
    assert aliased.gs_credentials_file == "/paimon.json"


def test_addresses_of_clouds() -> None:
    host = "account.dfs.core.windows.net"
    assert warehouse_path("gs://bucket//a/b/") == "gs://bucket/a/b"
    assert warehouse_path("az://container/a") == "az://container/a"
    assert warehouse_path(f"abfs://container@{host}/a") == f"abfss://container@{host}/a"
    for wrong in ("gs://", "gs://key:secret@bucket/x", "az://c@account/x", "abfss://container/x", "abfss://c@/x"):
        with pytest.raises(InvalidInputError, match="not an address in an object store") as refused:
            warehouse_path(wrong)
        assert "secret" not in str(refused.value)
    with pytest.raises(InvalidInputError, match=r"gs://, az://, abfss:// or hdfs:// address"):
        warehouse_path("ftp://name/x")
    with pytest.raises(InvalidInputError, match=r"storage account is not known: .*fix='set azure\.account"):
        FileCatalog("az://container/x", {})
    with pytest.raises(InvalidInputError, match=r"more than one login .*gs\.token"):
        FileCatalog("gs://bucket/x", {"gs.token": "a", "gs.credentials-file": "b"})
    with pytest.raises(InvalidInputError, match=r"go together: fix='set all three'"):
        FileCatalog(f"abfss://c@{host}/x", {"azure.client-secret": "a"})
    china = FileCatalog("abfss://c@account.dfs.core.chinacloudapi.cn/x", {"azure.sas-token": "a"})._io
    assert isinstance(china, ObjectStorageIO)
    assert isinstance(china.settings, AzureSettings)
    assert china.settings.endpoint == "https://account.blob.core.chinacloudapi.cn"


@pytest.mark.sweep
@pytest.mark.parametrize("cloud", ["az"], indirect=True)
def test_a_copy_in_a_cloud_is_read_by_another_library(cloud: Cloud) -> None:
    """A table and its copy as Delta Lake, both there; answers of the commit of the copy get lost."""
    table = cloud.catalog().create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    place = ExportPlace(io=cloud.files, root=f"{cloud.root}/copy", clock=SystemClock(), retain_ms=0)
    logins = {
        "account_name": ACCOUNT,
        "account_key": ACCOUNT_KEY,
        "azure_storage_endpoint": cloud.options["azure.endpoint"],
        "allow_http": "true",
    }
    for number in (1, 2):
        table.write(rows((1, number), (number, number)))
        cloud.proxy.loses_answer = cloud.proxy.lose_once("PUT", "/copy/_delta_log/")
        export_delta(open_state(table, "latest"), place, lambda done, of: None)
        read = DeltaTable(f"{cloud.root}/copy", storage_options=logins).to_pyarrow_table()
        assert {row["id"]: row["v"] for row in read.to_pylist()} == content(table)
    assert cloud.proxy.lost == 2
