"""Where the files of a catalog are: a local directory, or a prefix in an object store."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from filestore.io.file_io import FileIO, LocalFileIO
from filestore.io.object_store import SCHEMES, ObjectStorageIO, S3Settings, check_library
from filestore.options.catalog_options import CatalogOptions, from_environment
from lsm.errors import InvalidInputError
from lsm.secret_names import shown_address


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
        warehouse: absolute path, ``file://`` URI, or ``s3://bucket/prefix``.
        options: how an object store is reached.
        environment: says it where the options do not, in the names of AWS.
        io: file system; None: the one that the warehouse's address names.

    Raises:
        InvalidInputError: an address that we cannot read.
    """
    root = warehouse_path(warehouse)
    if io is not None:
        return Warehouse(root=root, io=io)
    bucket = urlsplit(root).netloc
    if not bucket:
        return Warehouse(root=root, io=LocalFileIO())
    check_library()
    settled = CatalogOptions.parse({**options.given, **from_environment(options.given, environment)})
    return Warehouse(root=root, io=ObjectStorageIO(settings=_s3(bucket, settled)))


def warehouse_path(warehouse: str) -> str:
    """The absolute path of a warehouse given as path, ``file:`` URI or ``s3://`` URL, without a slash at its end.

    Raises: InvalidInputError.
    """
    if not warehouse.strip():
        raise InvalidInputError("the warehouse has no name: fix='write a path, or an address such as s3://bucket/path'")
    parts = urlsplit(warehouse, allow_fragments=False)
    if parts.scheme == "file":
        if parts.netloc not in ("", "localhost"):
            raise InvalidInputError(
                f"warehouse is on another host: warehouse={shown_address(warehouse)} fix='write file:///path'"
            )
        path = unquote(parts.path)
    elif parts.scheme in SCHEMES:
        return _object_path(warehouse)
    elif parts.scheme and "://" in warehouse:
        raise InvalidInputError(
            f"warehouse must be a local path, or a file:// or s3:// address: warehouse={shown_address(warehouse)}"
        )
    else:
        path = warehouse
    if not path.startswith("/"):
        raise InvalidInputError(
            f"warehouse must be an absolute path: warehouse={shown_address(warehouse)!r} fix='write /path or file:///path'"
        )
    return path.rstrip("/") or "/"


def _object_path(warehouse: str) -> str:
    """``s3://bucket/prefix``: one scheme, one slash between the parts of the key."""
    bucket, _, key = warehouse.partition("://")[2].partition("/")
    parts = [part for part in key.split("/") if part]
    if not bucket or "@" in bucket or {".", ".."} & {*parts}:
        raise InvalidInputError(
            f"not an address in an object store: warehouse={shown_address(warehouse)} fix='write s3://bucket/path'"
        )
    return "/".join([f"s3://{bucket}", *parts])


def _s3(bucket: str, options: CatalogOptions) -> S3Settings:
    endpoint, access, secret = options.s3_endpoint, options.s3_access_key, options.s3_secret_key
    if (access is None) != (secret is None):
        raise InvalidInputError("s3.access-key and s3.secret-key go together: fix='set both, or neither'")
    if endpoint is not None and urlsplit(endpoint).scheme not in ("http", "https"):
        raise InvalidInputError(f"not the URL of an object store: s3.endpoint={endpoint} fix='write https://host'")
    return S3Settings(
        bucket=bucket,
        endpoint=None if endpoint is None else endpoint.rstrip("/"),
        region=options.s3_region,
        access_key=access,
        secret_key=secret,
        session_token=options.s3_session_token,
        path_style=options.s3_path_style_access,
    )
