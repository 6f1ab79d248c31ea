"""The root of a catalog's files: a local directory, or a prefix in an object store."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from filestore.io.file_io import FileIO, LocalFileIO
from filestore.io.object_clients import (
    AZURE_SCHEMES,
    GCS_SCHEMES,
    HDFS_SCHEME,
    SCHEMES,
    AzureSettings,
    GcsSettings,
    S3Settings,
    StoreSettings,
)
from filestore.io.object_store import ObjectStorageIO, check_library
from filestore.layout.links import real_roots
from filestore.options.catalog_options import CatalogOptions, from_environment
from lsm.errors import InvalidInputError
from lsm.secret_names import shown_address

if TYPE_CHECKING:
    from filestore.io.hdfs_client import WebHdfs


@dataclass(frozen=True, slots=True, kw_only=True)
class Warehouse:
    """A root path, and the file system that knows it."""

    root: str  # without a slash at its end
    io: FileIO

    @property
    def is_object_store(self) -> bool:
        """Whether directories are only prefixes of keys."""
        return isinstance(self.io, ObjectStorageIO)


def open_warehouse(
    warehouse: str, options: CatalogOptions, *, environment: Mapping[str, str], io: FileIO | None = None
) -> Warehouse:
    """Nothing is read or made.

    Args:
        warehouse: absolute path, ``file://`` URI, or an address such as ``s3://bucket/prefix``, ``gs://bucket/prefix``,
            ``az://container/prefix``, ``abfss://container@account.dfs.core.windows.net/prefix``.
        options: how an object store is reached.
        environment: says it where the options do not, in the names of the cloud's own tools.
        io: file system; None: the one that the warehouse's address names.

    Raises:
        InvalidInputError: an address that we cannot read.
    """
    root = warehouse_path(warehouse)
    if io is not None:
        return Warehouse(root=root, io=io)
    if urlsplit(root).scheme == HDFS_SCHEME:
        from filestore.io.hdfs_files import HdfsIO

        return Warehouse(root=root, io=HdfsIO(client=_web_hdfs(root, options, environment), root=root))
    parts = urlsplit(root)
    if not parts.netloc:
        return Warehouse(root=root, io=LocalFileIO(allowed=real_roots(options.external_paths_allowed)))
    check_library(parts.scheme)
    settled = CatalogOptions.parse({**options.given, **from_environment(options.given, environment)})
    return Warehouse(root=root, io=ObjectStorageIO(settings=_settings(parts.scheme, parts.netloc, settled)))


def warehouse_path(warehouse: str, *, what: str = "warehouse") -> str:
    """The absolute path of a warehouse given as path, ``file:`` URI or address, without a slash at its end.

    Args:
        warehouse: what is given.
        what: it is, for messages.

    Raises: InvalidInputError.
    """
    if not warehouse.strip():
        raise InvalidInputError(f"the {what} has no name: fix='write a path, or an address such as s3://bucket/path'")
    parts = urlsplit(warehouse, allow_fragments=False)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidInputError(
                f"{what} is on another host: {what}={shown_address(warehouse)} fix='write file:///path'"
            )
        path = unquote(parts.path)
    elif parts.scheme in SCHEMES:
        return _object_path(warehouse, parts.scheme, what)
    elif parts.scheme == HDFS_SCHEME:
        if not parts.hostname or "@" in parts.netloc:
            raise InvalidInputError(
                f"not an address in HDFS: {what}={shown_address(warehouse)} fix='write hdfs://namenode:8020/path'"
            )
        return "/".join([f"{HDFS_SCHEME}://{parts.netloc}", *(part for part in parts.path.split("/") if part)])
    elif parts.scheme and "://" in warehouse:
        raise InvalidInputError(
            f"{what} must be a local path, or a file://, s3://, gs://, az://, abfss:// or hdfs:// address: "
            f"{what}={shown_address(warehouse)}"
        )
    else:
        path = warehouse
    if not path.startswith("/"):
        raise InvalidInputError(
            f"{what} must be an absolute path: {what}={shown_address(warehouse)!r} fix='write /path or file:///path'"
        )
    return path.rstrip("/") or "/"


def _object_path(warehouse: str, scheme: str, what: str) -> str:
    """``scheme://bucket/prefix``: one spelling of each scheme, one slash between the parts of the key."""
    bucket, _, key = warehouse.partition("://")[2].partition("/")
    parts = [part for part in key.split("/") if part]
    scheme, form = _SPELLINGS.get(scheme, ("s3", "s3://bucket/path"))
    container, _, account = bucket.partition("@")
    is_named = bool(container and account.partition(".")[0]) if scheme == "abfss" else "@" not in bucket
    if not bucket or not is_named or ":" in bucket or {".", ".."} & {*parts}:
        raise InvalidInputError(
            f"not an address in an object store: {what}={shown_address(warehouse)} fix='write {form}'"
        )
    return "/".join([f"{scheme}://{bucket}", *parts])


_ABFSS: Final = ("abfss", "abfss://container@account.dfs.core.windows.net/path")
_SPELLINGS: Final[Mapping[str, tuple[str, str]]] = {
    "gs": ("gs", "gs://bucket/path"),
    "az": ("az", "az://container/path"),
    **dict.fromkeys(("abfs", "abfss"), _ABFSS),
}
"""By scheme: its one spelling, and the form of its addresses. All others are S3's."""


def _settings(scheme: str, bucket: str, options: CatalogOptions) -> StoreSettings:
    if scheme in GCS_SCHEMES:
        return _gcs(bucket, options)
    if scheme in AZURE_SCHEMES:
        return _azure(scheme, bucket, options)
    return _s3(bucket, options)


def _web_hdfs(root: str, options: CatalogOptions, environment: Mapping[str, str]) -> "WebHdfs":
    from filestore.io.hdfs_client import DEFAULT_HTTP_PORT, WebHdfs, hadoop_user

    given = options.hdfs_webhdfs_address or f"http://{urlsplit(root).hostname}:{DEFAULT_HTTP_PORT}"
    addresses = tuple(each.strip().rstrip("/") for each in given.split(","))
    for each in addresses:
        if urlsplit(each).scheme not in ("http", "https") or not urlsplit(each).hostname:
            raise InvalidInputError(
                f"not the HTTP address of a name node: hdfs.webhdfs-address={each} fix='http://host:9870'"
            )
    return WebHdfs(addresses=addresses, user=options.hdfs_user or hadoop_user(environment))


def _s3(bucket: str, options: CatalogOptions) -> S3Settings:
    access, secret = options.s3_access_key, options.s3_secret_key
    if (access is None) != (secret is None):
        raise InvalidInputError("s3.access-key and s3.secret-key go together: fix='set both, or neither'")
    return S3Settings(
        bucket=bucket,
        endpoint=_endpoint("s3.endpoint", options.s3_endpoint),
        region=options.s3_region,
        access_key=access,
        secret_key=secret,
        session_token=options.s3_session_token,
        path_style=options.s3_path_style_access,
    )


def _gcs(bucket: str, options: CatalogOptions) -> GcsSettings:
    logins = {
        "gs.credentials-file": options.gs_credentials_file,
        "gs.service-account-key": options.gs_service_account_key,
        "gs.token": options.gs_token,
    }
    _check_one_login(logins)
    return GcsSettings(
        bucket=bucket,
        endpoint=_endpoint("gs.endpoint", options.gs_endpoint),
        credentials_file=options.gs_credentials_file,
        service_account_key=options.gs_service_account_key,
        token=options.gs_token,
    )


def _azure(scheme: str, bucket: str, options: CatalogOptions) -> AzureSettings:
    container, _, host = bucket.partition("@")
    account = host.partition(".")[0] or options.azure_account
    cloud = host.partition(".dfs.")[2]  # of a nation, where it is not Azure's own
    endpoint = options.azure_endpoint or (f"https://{account}.blob.{cloud}" if cloud else None)
    if account is None:
        raise InvalidInputError(
            f"the storage account is not known: warehouse={scheme}://{bucket} "
            "fix='set azure.account, or write abfss://container@account.dfs.core.windows.net/path'"
        )
    application = (options.azure_tenant_id, options.azure_client_id, options.azure_client_secret)
    if options.azure_client_secret is not None and None in application:
        raise InvalidInputError(
            "azure.tenant-id, azure.client-id and azure.client-secret go together: fix='set all three'"
        )
    _check_one_login(
        {
            "azure.account-key": options.azure_account_key,
            "azure.sas-token": options.azure_sas_token,
            "azure.client-secret": options.azure_client_secret,
        }
    )
    return AzureSettings(
        bucket=container,
        account=account,
        address=f"{scheme}://{bucket}",
        endpoint=_endpoint("azure.endpoint", endpoint),
        account_key=options.azure_account_key,
        sas_token=options.azure_sas_token,
        tenant_id=options.azure_tenant_id,
        client_id=options.azure_client_id,
        client_secret=options.azure_client_secret,
    )


def _endpoint(option: str, given: str | None) -> str | None:
    if given is not None and urlsplit(given).scheme not in ("http", "https"):
        raise InvalidInputError(f"not the URL of an object store: {option}={given} fix='write https://host'")
    return None if given is None else given.rstrip("/")


def _check_one_login(logins: Mapping[str, str | None]) -> None:
    given = [option for option, value in logins.items() if value is not None]
    if len(given) > 1:
        raise InvalidInputError(f"more than one login for an object store: options={given} fix='set one of them'")
