"""The table in an Iceberg REST catalog: after each version of the metadata the server gets what is new in it.

The server keeps metadata of its own. It takes over a version as a whole when it does not know the table or cannot
follow (``register``), else snapshots and refs as changes of one commit, which is refused if another one was faster.
Source: Iceberg's rest-catalog-open-api.yaml; Paimon IcebergRestMetadataCommitter.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from filestore.iceberg.metadata import Json, Metadata
from filestore.options.table.iceberg import REST_CATALOG
from filestore.table_store import TableStore
from lsm.errors import ConflictError, FluvialError, InvalidInputError, UnavailableError
from lsm.secret_names import shown_line

if TYPE_CHECKING:
    from pyiceberg.catalog.rest import RestCatalog

CATALOG: Final = "fluvial"
"""Its name in pyiceberg's configuration, where its login is: ``PYICEBERG_CATALOG__FLUVIAL__TOKEN``."""
_ATTEMPTS: Final = 3
_TIMEOUT_S: Final = 30.0
_MESSAGE_CHARS: Final = 300
_MAIN: Final = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """What a server that knows the table has to change."""

    snapshots: tuple[Json, ...]  # new ones, oldest first
    refs: Mapping[str, Json]  # new or moved ones
    refs_gone: tuple[str, ...]
    snapshots_gone: tuple[int, ...]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is new."""
        return not (self.snapshots or self.refs or self.refs_gone or self.snapshots_gone)


def announcement(known: Mapping[str, Any], shown: Mapping[str, Any]) -> Announcement | None:
    """The way from a server's metadata to that of the table.

    Args:
        known: the server's, in pyiceberg's JSON.
        shown: that of the table, likewise.

    Returns:
        None: there is none, as the history, the schema or the table is another one, or a branch has new snapshots.
    """
    same = ("table-uuid", "format-version", "location", "schemas", "partition-specs", "sort-orders")
    if any(known.get(name) != shown.get(name) for name in same):
        return None
    before = {each["snapshot-id"]: each for each in known.get("snapshots") or ()}
    after = {each["snapshot-id"]: each for each in shown["snapshots"]}
    current = known.get("current-snapshot-id")
    compared = ("summary", "manifest-list")
    if current not in after or any(
        before[each].get(name) != after[each].get(name) for each in before & after.keys() for name in compared
    ):
        return None
    new = tuple(each for each in shown["snapshots"] if each["snapshot-id"] not in before)
    last = known.get("last-sequence-number") or current
    if any(each.get("sequence-number", each["snapshot-id"]) <= last for each in new):
        return None  # of a branch, or before what the server has: it takes snapshots in their order only
    known_refs = {name: _place(ref) for name, ref in (known.get("refs") or {}).items()}
    refs = {name: ref for name, ref in shown["refs"].items() if known_refs.get(name) != _place(ref)}
    return Announcement(
        snapshots=new,
        refs=refs,
        refs_gone=tuple(sorted(known_refs.keys() - shown["refs"].keys())),
        snapshots_gone=tuple(sorted(before.keys() - after.keys())),
    )


def announce_version(store: TableStore, shown: Metadata, path: str) -> None:
    """Bring the server up to a version of the metadata.

    Args:
        store: the table, with ``metadata.iceberg.storage=rest-catalog``.
        shown: the version.
        path: of its file, which the server can read.

    Raises:
        UnavailableError: the server is away, or refuses.
        ConflictError: other writers were faster every time.
    """
    from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError, RESTError
    from pyiceberg.table.metadata import TableMetadataUtil

    with _errors(store):
        catalog, name = _catalog(store), table_name(store)
        for _ in range(_ATTEMPTS):
            try:
                table = catalog.load_table(name)
            except NoSuchTableError:
                with suppress(NamespaceAlreadyExistsError):
                    catalog.create_namespace(name[:-1])
                catalog.register_table(name, path)
                return
            except RESTError as error:
                if path.rpartition("/")[0] not in str(error):
                    raise
                _replace(catalog, name, path)  # its metadata went with a table that was here before
                return
            known = _json(table.metadata)
            if _is_ahead(store, known, shown):
                return
            change = announcement(known, _json(TableMetadataUtil.parse_raw(shown.to_json().decode())))
            if change is not None and change.is_empty:
                return
            if change is None:
                _replace(catalog, name, path)
                return
            try:
                catalog.commit_table(table, *_request(known, change))
            except CommitFailedException:
                continue
            return
    raise ConflictError(f"other writers were faster in the REST catalog: table={store.name} attempts={_ATTEMPTS}")


def server_properties(store: TableStore) -> dict[str, str]:
    """Properties of the table by which a server deletes its own former metadata files."""
    options = store.options
    if options.iceberg_storage != REST_CATALOG or not options.iceberg_delete_after_commit:
        return {}
    return {
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": str(max(1, options.iceberg_previous_versions_max)),
    }


def table_name(store: TableStore) -> tuple[str, str]:
    """Namespace and name of a table in the catalog: those of the table, unless its options name others."""
    database, _, name = store.name.rpartition(".")
    return store.options.iceberg_database or database, store.options.iceberg_table or name


def _is_ahead(store: TableStore, known: Mapping[str, Any], shown: Metadata) -> bool:
    """Whether another writer has announced a later snapshot, which is still there."""
    current = known.get("current-snapshot-id")
    if known["table-uuid"] != shown.body["table-uuid"] or current is None or current <= shown.snapshot_id:
        return False
    return store.snapshots.find_ref(Metadata(dict(known)).ref) is not None


def _replace(catalog: "RestCatalog", name: tuple[str, str], path: str) -> None:
    """Let a server take over a version in the place of what it has; old servers cannot in one step."""
    from pyiceberg.exceptions import RESTError, TableAlreadyExistsError

    try:
        catalog.register_table(name, path, overwrite=True)
    except (TableAlreadyExistsError, RESTError):
        catalog.drop_table(name)
        catalog.register_table(name, path)


def _request(known: Mapping[str, Any], change: Announcement) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    from pyiceberg.table import update
    from pyiceberg.table.snapshots import Snapshot

    updates: list[Any] = [update.AddSnapshotUpdate(snapshot=Snapshot.model_validate(each)) for each in change.snapshots]
    for name, ref in change.refs.items():
        place = {"ref-name": name, "type": ref["type"], "snapshot-id": ref["snapshot-id"]}
        updates.append(update.SetSnapshotRefUpdate.model_validate(place))
    updates += [update.RemoveSnapshotRefUpdate.model_validate({"ref-name": name}) for name in change.refs_gone]
    if change.snapshots_gone:
        updates.append(update.RemoveSnapshotsUpdate.model_validate({"snapshot-ids": list(change.snapshots_gone)}))
    main = {"ref": _MAIN, "snapshot-id": known["current-snapshot-id"]}
    requirements = (
        update.AssertTableUUID.model_validate({"uuid": known["table-uuid"]}),
        update.AssertRefSnapshotId.model_validate(main),
    )
    return requirements, tuple(updates)


def _json(metadata: Any) -> Json:
    found: Json = metadata.model_dump(by_alias=True, mode="json")
    return found


def _place(ref: Mapping[str, Any]) -> tuple[Any, Any]:
    return ref["type"], ref["snapshot-id"]


def _catalog(store: TableStore) -> "RestCatalog":
    from pyiceberg.catalog.rest import RestCatalog
    from pyiceberg.utils.config import Config

    class Patient(RestCatalog):
        """A server that does not answer must not hold a commit."""

        def _create_session(self) -> Any:
            session = super()._create_session()
            session.request = partial(session.request, timeout=_TIMEOUT_S)
            return session

    options = store.options
    given = {"uri": options.iceberg_rest_uri, "warehouse": options.iceberg_rest_warehouse}
    own = Config().get_catalog_config(CATALOG) or {}
    _check_address(store, own)
    return Patient(CATALOG, **{**own, **{name: value for name, value in given.items() if value}})


def _check_address(store: TableStore, own: Mapping[str, Any]) -> None:
    """Refuse to take a user's configuration to an address that is not in it: a table's files may be another's."""
    address, known = store.options.iceberg_rest_uri or "", str(own.get("uri") or "")
    if own.keys() - {"uri", "warehouse", "type"} and address.rstrip("/") != known.rstrip("/"):
        raise InvalidInputError(
            f"the configuration of the Iceberg catalog {CATALOG} is not for this address: table={store.name} "
            f"option=metadata.iceberg.rest.uri value={shown_line(address)} known={shown_line(known) or None} "
            f"fix='set PYICEBERG_CATALOG__{CATALOG.upper()}__URI to the address, if the login may go there'"
        )


@contextmanager
def _errors(store: TableStore) -> Iterator[None]:
    """Maps what pyiceberg and its HTTP client raise."""
    try:
        yield
    except FluvialError:
        raise
    except Exception as error:
        said = shown_line(str(error).splitlines()[0])[:_MESSAGE_CHARS] if str(error) else type(error).__name__
        raise UnavailableError(
            f"the Iceberg REST catalog does not take the metadata: table={store.name} "
            f"metadata.iceberg.rest.uri={store.options.iceberg_rest_uri} error={type(error).__name__}: {said} "
            f"fix='see that it runs, can read {store.paths.root}/metadata, and takes the login that pyiceberg is "
            f"configured with for the catalog {CATALOG}'"
        ) from error
