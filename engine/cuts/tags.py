"""A consistent tag of many tables: one tag per table, all with the same name; created or rolled back together.

Each tag holds the whole cut, under a key that other engines ignore. So each tag leads to the others, and a creation or
a rollback that failed half-way is completed by repeating it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from filestore.layout.version_names import check_tag_name
from filestore.maintenance.rewriting import partitions_to_restore
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from filestore.tag.tags import create_tag, delete_tag
from lsm.errors import ConflictError, CorruptDataError, FluvialError, InvalidInputError, OutcomeUnknownError
from lsm.nearest_names import names_text

_KEY: Final = "fluvialCut"


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRecord:
    """The content of every tag of a cut."""

    id: str  # of the cut
    tables: Mapping[str, int]  # snapshot by name
    batches: Mapping[str, int]  # last batch by commit user

    def to_json(self) -> dict[str, Any]:
        """The JSON object in a tag's file."""
        return {"id": self.id, "tables": dict(self.tables), "batches": dict(self.batches)}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> "CutRecord":
        """The inverse of ``to_json``. Raises: KeyError, TypeError or ValueError."""
        return cls(
            id=str(body["id"]),
            tables={str(name): int(at) for name, at in body["tables"].items()},
            batches={str(user): int(at) for user, at in body["batches"].items()},
        )


def read_cut(store: TableStore, tag: str) -> CutRecord | None:
    """The cut of a tag; None when the tag is missing. Raises: InvalidInputError when the tag belongs to no cut."""
    path = store.paths.tag(tag)
    try:
        body = orjson.loads(store.io.read_bytes(path)).get(_KEY)
        if body is not None:
            return CutRecord.from_json(body)
    except FileNotFoundError:
        return None
    except (KeyError, TypeError, ValueError) as error:
        raise CorruptDataError(f"tag cannot be decoded: file={path} error={error!r}") from error
    raise InvalidInputError(
        f"the tag is not a consistent tag of several tables: table={store.name} tag={tag} fix=choose another name"
    )


def find_incomplete_cut(tables: Mapping[str, TableStore], tag: str) -> CutRecord | None:
    """The incomplete cut of this name; None when no table has the tag.

    Raises: InvalidInputError when the name is taken by a complete cut or by another tag.
    """
    check_tag_name(tag)
    found = {name: record for name, table in tables.items() if (record := read_cut(table, tag)) is not None}
    if not found:
        return None
    record = next(iter(found.values()))
    is_same = all(each == record for each in found.values()) and set(record.tables) == set(tables)
    if not is_same or len(found) == len(tables):
        what = "the consistent tag already exists" if is_same else "a tag of another cut already exists"
        raise InvalidInputError(
            f"{what}: tag={tag} tables={','.join(found)} fix=choose another name, or delete these tags"
        )
    return record


def tag_cut(tables: Mapping[str, TableStore], tag: str, record: CutRecord, *, retained_ms: int | None = None) -> None:
    """Create the tags of a cut that are missing.

    Raises:
        ConflictError: a snapshot expired meanwhile; no tag was created, choose a new cut.
        FluvialError: no tag was created, unless the message lists remaining ones.
        OutcomeUnknownError: a tag may have been created; try again.
    """
    for name, table in tables.items():
        if read_cut(table, tag) == record:
            continue
        try:
            create_tag(
                table, tag, snapshot_id=record.tables[name], retained_ms=retained_ms, notes={_KEY: record.to_json()}
            )
        except OutcomeUnknownError:
            raise
        except (FluvialError, OSError) as error:
            left = _taken_back(tables, tag, record)
            if left:
                raise ConflictError(
                    f"a cut could not be completed, and some of its tags remain: tag={tag} failed={name} "
                    f"remaining={','.join(left)} cause={error} fix=do it again to complete it, or delete these tags"
                ) from error
            raise


def _taken_back(tables: Mapping[str, TableStore], tag: str, record: CutRecord) -> list[str]:
    """Delete the tags of a cut. Returns: the tables that may still have one."""
    left = []
    for name, table in tables.items():
        try:
            if read_cut(table, tag) == record:
                delete_tag(table, tag)
        except (FluvialError, OSError):
            left.append(name)
    return left


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRollback:
    """The effect of a rollback to a cut on one table."""

    name: str
    previous_id: int
    wanted: Snapshot
    partitions: Sequence[bytes]  # to restore; () when the rows are already those of the cut


def cut_tables(store: TableStore, tag: str) -> CutRecord:
    """The cut of a tag. Raises: InvalidInputError when the tag is missing or belongs to no cut."""
    found = read_cut(store, tag)
    if found is None:
        raise InvalidInputError(
            f"no such tag: table={store.name} tag={tag} {names_text('tags', tag, store.snapshots.tag_names())}"
        )
    return found


def plan_cut_rollback(tables: Mapping[str, TableStore], tag: str) -> list[TableRollback]:
    """The effect of a rollback to a cut; changes nothing.

    Raises: InvalidInputError when a tag is missing, or a table cannot be rolled back.
    """
    plans = []
    ids = {}
    for name, table in tables.items():
        ids[name] = cut_tables(table, tag).id
        wanted, latest = table.snapshots.tag(tag), table.snapshots.latest()
        if latest is None:
            raise InvalidInputError(f"the table has no snapshot: table={name} tag={tag}")
        partitions = tuple(partitions_to_restore(table, wanted))
        plans.append(TableRollback(name=name, previous_id=latest.id, wanted=wanted, partitions=partitions))
    if len(set(ids.values())) > 1:
        raise InvalidInputError(
            f"the tags are of different cuts: tag={tag} cuts={ids} fix=delete them and create the tag again"
        )
    return plans
