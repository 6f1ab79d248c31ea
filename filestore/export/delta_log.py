"""The log of a Delta Lake table: which files it has, read and written as the protocol says.

Each commit is one file with the next number, created exclusively: of two writers, one wins. Reading begins at the
newest checkpoint.
Source: Delta protocol, "Delta Log Entries", "Checkpoints" and "Actions".
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as kinds

from filestore.io.file_io import FileIO
from lsm.errors import ConflictError, CorruptDataError, InvalidInputError

LOG_DIRECTORY: Final = "_delta_log"
_COMMIT: Final = ".json"
_CHECKPOINT: Final = ".checkpoint.parquet"
_DIGITS: Final = 20
_NOTES: Final = frozenset({"commitInfo", "cdc", "checkpointMetadata"})  # say nothing about the state
_NTZ: Final = {"timestampNtz"}
_ADDED: Final = frozenset({"path", "partitionValues", "size", "modificationTime", "dataChange", "stats", "tags"})
_DERIVED: Final = frozenset({"stats_parsed", "partitionValues_parsed"})

Action = Mapping[str, Any]


@dataclass(slots=True)
class DeltaState:
    """The state of a table after its last commit."""

    version: int = -1  # of the last commit; -1: there is no table
    checkpoint: int = -1  # version of the newest checkpoint; -1: there is none
    metadata: dict[str, Any] = field(default_factory=dict)
    protocol: dict[str, Any] = field(default_factory=dict)
    files: dict[str, Action] = field(default_factory=dict)  # add actions by path
    removed_ms: dict[str, int] = field(default_factory=dict)  # epoch milliseconds by path, of what it had once
    is_plain: bool = True  # nothing was said that is not here

    def after(self, actions: Iterable[Action]) -> "DeltaState":
        """The state with one commit more."""
        found = replace(self, version=self.version + 1, files={**self.files}, removed_ms={**self.removed_ms})
        found.apply(actions)
        return found

    def apply(self, actions: Iterable[Action]) -> None:
        """Take over what a commit or a checkpoint says."""
        for action in actions:
            for kind, value in action.items():
                if value is not None and kind not in _NOTES:
                    self._apply(kind, {name: each for name, each in value.items() if each is not None})

    def _apply(self, kind: str, found: dict[str, Any]) -> None:
        if kind == "add":
            self.files[found["path"]] = {name: each for name, each in found.items() if name not in _DERIVED}
            self.removed_ms.pop(found["path"], None)
            self.is_plain &= found.keys() <= _ADDED | _DERIVED
        elif kind == "remove":
            self.files.pop(found["path"], None)
            self.removed_ms[found["path"]] = found.get("deletionTimestamp") or 0
        elif kind == "metaData":
            self.metadata = found
        elif kind == "protocol":
            self.protocol = found
            self.is_plain &= {*found.get("readerFeatures", ()), *found.get("writerFeatures", ())} <= _NTZ
        else:
            self.is_plain = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LogFiles:
    """Versions of the files of a log, oldest first."""

    commits: list[int]
    checkpoints: list[int]  # that are one file each

    @classmethod
    def list(cls, io: FileIO, root: str) -> "LogFiles":
        """What is there."""
        names = io.list_names(f"{root}/{LOG_DIRECTORY}")
        return cls(commits=_versions(names, _COMMIT), checkpoints=_versions(names, _CHECKPOINT))

    @staticmethod
    def commit_path(root: str, version: int) -> str:
        """The path of a commit."""
        return f"{root}/{LOG_DIRECTORY}/{version:0{_DIGITS}d}{_COMMIT}"

    @staticmethod
    def checkpoint_path(root: str, version: int) -> str:
        """The path of a checkpoint."""
        return f"{root}/{LOG_DIRECTORY}/{version:0{_DIGITS}d}{_CHECKPOINT}"


def read_log(io: FileIO, root: str) -> DeltaState:
    """The newest checkpoint, and all commits behind it.

    Raises:
        InvalidInputError: another engine has removed commits that no checkpoint of one file stands for.
        CorruptDataError: a commit is not JSON, or a checkpoint is not one.
    """
    state, log = DeltaState(), LogFiles.list(io, root)
    if log.checkpoints:
        state.version = state.checkpoint = log.checkpoints[-1]
        state.apply(_checkpoint(io, log.checkpoint_path(root, state.version)))
    for version in (each for each in log.commits if each > state.checkpoint):
        if version != state.version + 1:
            raise InvalidInputError(
                f"commits of the copy are missing, another engine has cleaned its log: path={root} "
                f"missing={state.version + 1} fix='export to a new directory'"
            )
        state.apply(_commit(io, log.commit_path(root, version)))
        state.version = version
    return state


def commit(io: FileIO, root: str, version: int, actions: Iterable[Action]) -> None:
    """Publish a commit. Raises: ConflictError: another writer has this version; OutcomeUnknownError."""
    body = "".join(json.dumps(action, separators=(",", ":")) + "\n" for action in actions)
    if not io.create_exclusive(LogFiles.commit_path(root, version), body.encode()):
        raise ConflictError(
            f"another export or engine has written to the copy meanwhile: path={root} version={version} fix='repeat it'"
        )


def _versions(names: Iterable[str], suffix: str) -> list[int]:
    texts = (name.removesuffix(suffix) for name in names if name.endswith(suffix))
    return sorted(int(text) for text in texts if text.isdecimal() and len(text) == _DIGITS)


def _commit(io: FileIO, path: str) -> Iterator[Action]:
    for line in io.read_bytes(path).splitlines():
        try:
            yield json.loads(line)
        except ValueError as error:
            raise CorruptDataError(f"a commit of the copy is not JSON: path={path} error={error}") from error


def _checkpoint(io: FileIO, path: str) -> Iterator[Action]:
    """What a checkpoint says, one kind of action after the other."""
    try:
        with io.open_input(path) as source:
            rows = pq.read_table(source)
        for kind, values in zip(rows.column_names, rows.columns, strict=True):
            yield from ({kind: each} for each in values.drop_null().to_pylist(maps_as_pydicts="strict"))
    except pa.ArrowException as error:
        raise CorruptDataError(
            f"a checkpoint of the copy cannot be read: path={path} error={error} fix='export to a new directory'"
        ) from error


# ---- Columns as Delta Lake's schema, and the Arrow types that their Parquet files have
#
# Source: Delta protocol, "Schema Serialization Format".


_PLAIN: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
}
NTZ: Final = "timestamp_ntz"
_MOST_DIGITS: Final = 38


def delta_schema(schema: pa.Schema) -> tuple[str, pa.Schema]:
    """The schema as text, and the Arrow schema of the files: timestamps in microseconds, nothing else changed.

    Raises: InvalidInputError naming a column whose type Delta Lake does not have.
    """
    fields = [_field(field, field.name) for field in schema]
    text = json.dumps({"type": "struct", "fields": [field for field, _ in fields]}, separators=(",", ":"))
    return text, pa.schema([stored for _, stored in fields])


def needs_ntz(schema_text: str) -> bool:
    """Whether a column has timestamps without zone, which readers of the first versions do not know."""
    return f'"{NTZ}"' in schema_text


def _field(field: pa.Field, path: str) -> tuple[dict[str, Any], pa.Field]:
    kind, stored = _type(field.type, path)
    named = {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": {}}
    return named, pa.field(field.name, stored, field.nullable)


def _type(given: pa.DataType, path: str) -> tuple[Any, pa.DataType]:
    if given in _PLAIN:
        return _PLAIN[given], given
    if kinds.is_string(given) or kinds.is_large_string(given):
        return "string", given
    if kinds.is_binary(given) or kinds.is_large_binary(given) or kinds.is_fixed_size_binary(given):
        return "binary", given
    if kinds.is_decimal(given) and given.precision <= _MOST_DIGITS:
        return f"decimal({given.precision},{given.scale})", given
    if kinds.is_timestamp(given) and given.unit != "ns":
        return ("timestamp" if given.tz else NTZ), pa.timestamp("us", "UTC" if given.tz else None)
    if kinds.is_list(given):
        kind, stored = _type(given.value_type, f"{path}.element")
        named = {"type": "array", "elementType": kind, "containsNull": given.value_field.nullable}
        return named, pa.list_(pa.field("element", stored, given.value_field.nullable))
    if kinds.is_map(given):
        (key, stored_key), (item, stored_item) = (_type(each, path) for each in (given.key_type, given.item_type))
        named = {"type": "map", "keyType": key, "valueType": item, "valueContainsNull": given.item_field.nullable}
        return named, pa.map_(stored_key, pa.field("value", stored_item, given.item_field.nullable))
    if kinds.is_struct(given):
        fields = [_field(each, f"{path}.{each.name}") for each in given]
        return {"type": "struct", "fields": [field for field, _ in fields]}, pa.struct([each for _, each in fields])
    raise InvalidInputError(f"Delta Lake has no such type: column={path} type={given} fix='export as parquet'")
