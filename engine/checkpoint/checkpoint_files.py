"""The files of a streaming query's checkpoint that define its position after one micro-batch.

Spark resumes from the newest number in ``offsets`` and in ``commits``, and loads the state version that follows the
batch. A checkpoint as of a batch is therefore the checkpoint without later files. The layout is that of Spark 3.5 to
4.3: ``metadata``, ``offsets/N``, ``commits/N``, ``sources/K/...``, ``state/OPERATOR/PARTITION/VERSION.*``.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError

METADATA_FILE: Final = "metadata"
OWN_FILES: Final = ".fluvial-"
"""The beginning of the names of Fluvial's own files among Spark's."""
_HEADER_LINES: Final = 2  # of an offsets file: the version, then the batch's metadata
_NONE: Final = "-"  # a source that has no offset yet
_STATE: Final = re.compile(r"(\d+)(_[^.]*)?\.(delta|snapshot|zip|changelog)")
_LOG: Final = re.compile(r"(\d+)(\.compact)?")
_MS: Final = 1000
_LOOK_EVERY_MS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFiles:
    """A checkpoint as of a batch."""

    query_id: str
    batch_id: int
    location: str
    files: Mapping[str, Path | bytes]  # relative path -> file to copy, or content
    sources: tuple[Any, ...]  # end offset of each source; None for a source without one


def checkpoint_root(location: str) -> Path:
    """The checkpoint's local directory. Raises: InvalidInputError when it is not local."""
    parts = urlsplit(location)
    if parts.scheme not in ("", "file") or parts.netloc not in ("", "localhost"):
        raise InvalidInputError(
            f"only a checkpoint on this machine can be saved: checkpoint={location} fix=put it into a local directory"
        )
    return Path(unquote(parts.path) if parts.scheme else location)


def query_id_of(location: str) -> str:
    """The query id that a checkpoint stores. Raises: InvalidInputError when the directory is not a checkpoint."""
    path = checkpoint_root(location) / METADATA_FILE
    try:
        return str(json.loads(path.read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInputError(
            f"no checkpoint of a streaming query: checkpoint={location} reason={error} fix=look at the path"
        ) from error


def files_as_of(
    location: str, batch_id: int, *, sleep: Callable[[float], None], wait_ms: int = 10_000
) -> CheckpointFiles:
    """The files that a query needs to continue after a batch.

    Args:
        location: ``checkpointLocation``, on this machine; the query may be running.
        batch_id: a batch that the table contains.
        sleep: sleeps for a number of seconds.
        wait_ms: how long to wait for Spark to record a stateful batch, which happens after the table's commit.

    Raises:
        InvalidInputError: not a checkpoint, or its state names its own directory.
        UnavailableError: the batch is stateful and not recorded as committed; try again later.
        CorruptDataError: the checkpoint does not go back to the batch.
    """
    root, query_id = checkpoint_root(location), query_id_of(location)
    offsets = offsets_of(root, location, batch_id)
    if (root / "state").is_dir():
        _wait_for(root / "commits" / str(batch_id), sleep, wait_ms)
    names = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file() and not _is_hidden(path)}
    chosen: dict[str, Path | bytes] = {
        name: root / name for name in needed_files(names, batch_id=batch_id, sources=offsets.sources)
    }
    done = f"commits/{batch_id}"
    if done not in chosen:
        chosen[done] = _commit_of(names, offsets, location, batch_id)
    _check_movable(root, chosen, location)
    return CheckpointFiles(
        query_id=query_id, batch_id=batch_id, location=location, files=chosen, sources=offsets.sources
    )


def needed_files(names: Iterable[str], *, batch_id: int, sources: tuple[Any, ...]) -> list[str]:
    """The files that define the query's position after a batch, sorted; ``metadata`` is not one of them.

    Args:
        names: relative paths of all files of the checkpoint.
        batch_id: the batch.
        sources: end offset of each source.
    """
    known = set(names)
    found = []
    for name in sorted(known):
        top, *rest = name.split("/")
        if top in ("offsets", "commits") and len(rest) == 1:
            is_needed = rest[0] in (str(batch_id), str(batch_id - 1))
        elif top == "sources" and len(rest) >= 2:
            is_needed = _is_source_file_needed(rest[0], "/".join(rest[1:]), known, sources)
        elif top == "state":
            version = _STATE.fullmatch(rest[-1])
            is_needed = version is None or int(version[1]) <= batch_id + 1
        else:
            is_needed = False
        if is_needed:
            found.append(name)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOffsets:
    """The ``offsets`` file of a batch."""

    facts: Mapping[str, Any]  # times, watermark, settings
    sources: tuple[Any, ...]  # end offset of each source; None for a source without one


def offsets_of(root: Path, location: str, batch_id: int) -> BatchOffsets:
    """The recorded offsets of a batch. Raises: CorruptDataError when this batch or the one before is missing."""
    for each in (batch_id - 1, batch_id):
        if each >= 0 and not (root / "offsets" / str(each)).exists():
            raise CorruptDataError(
                f"the checkpoint does not have the batch any more, or not yet: checkpoint={location} batch_id={each} "
                "fix=raise spark.sql.streaming.minBatchesToRetain, or save more often"
            )
    return _parsed_offsets(root / "offsets" / str(batch_id))


def _parsed_offsets(path: Path) -> BatchOffsets:
    try:
        lines = path.read_text().splitlines()
        sources = tuple(None if line == _NONE else json.loads(line) for line in lines[_HEADER_LINES:])
        return BatchOffsets(facts=json.loads(lines[1]), sources=sources)
    except (OSError, ValueError, IndexError) as error:
        raise CorruptDataError(f"offsets of a batch cannot be read: file={path} reason={error!r}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The progress of a query."""

    query_id: str
    batch_id: int | None  # of the last finished micro-batch; None: no batch has finished
    offsets: tuple[Any, ...]  # end offsets of that batch, one per source that has one


def is_readable(location: str) -> bool:
    """Whether this process can read a checkpoint: only local ones."""
    return urlsplit(location).scheme in ("", "file")


def read_checkpoint(location: str) -> CheckpointState | None:
    """The state of a checkpoint; None when no query has used it yet.

    Raises:
        InvalidInputError: the directory is not a checkpoint, or cannot be read.
    """
    root = checkpoint_root(location)
    if not (root / METADATA_FILE).exists():
        if root.is_dir() and any(not each.name.startswith(OWN_FILES) for each in root.iterdir()):
            raise InvalidInputError(
                f"the directory is not a checkpoint, and not empty: checkpoint={location} fix=use another directory"
            )
        return None
    query_id = query_id_of(location)
    batch_id = _newest(root / "commits")
    try:
        sources = () if batch_id is None else _parsed_offsets(root / "offsets" / str(batch_id)).sources
    except CorruptDataError as error:
        raise InvalidInputError(
            f"the checkpoint cannot be read: checkpoint={location} reason='{error}' fix=use another directory"
        ) from error
    return CheckpointState(
        query_id=query_id, batch_id=batch_id, offsets=tuple(each for each in sources if each is not None)
    )


def recorded_offsets(location: str) -> tuple[Any, ...]:
    """The end offset of each source in the newest batch that Spark has planned, finished or not; () before the first.

    Raises:
        InvalidInputError: the checkpoint is not on this machine.
        CorruptDataError: the file cannot be read.
    """
    root = checkpoint_root(location)
    newest = _newest(root / "offsets")
    return () if newest is None else _parsed_offsets(root / "offsets" / str(newest)).sources


def _newest(folder: Path) -> int | None:
    return max((int(path.name) for path in folder.glob("*") if path.name.isdecimal()), default=None)


def _wait_for(path: Path, sleep: Callable[[float], None], wait_ms: int) -> None:
    for _ in range(0, wait_ms, _LOOK_EVERY_MS):
        if path.exists():
            return
        sleep(_LOOK_EVERY_MS / _MS)


def _is_source_file_needed(source: str, name: str, known: set[str], sources: tuple[Any, ...]) -> bool:
    """Entries of the source's log up to the batch, and all other files of the source."""
    number = _LOG.fullmatch(name)
    end = sources[int(source)] if source.isdigit() and int(source) < len(sources) else None
    if number is None or not isinstance(end, Mapping) or not isinstance(end.get("logOffset"), int):
        return True
    last = int(end["logOffset"])
    if int(number[1]) <= last:
        return True
    # Spark deletes entries some time after a later file has compacted them
    has_all = all(f"sources/{source}/{each}" in known for each in range(last + 1)) or any(
        f"sources/{source}/{each}.compact" in known for each in range(last + 1)
    )
    return number[2] is not None and not has_all


def _commit_of(names: set[str], offsets: BatchOffsets, location: str, batch_id: int) -> bytes:
    """The commit file that Spark would have written for a batch that is in the table."""
    if any(name.startswith("state/") for name in names):
        raise UnavailableError(
            f"the query has not recorded the batch, and its state may be incomplete: checkpoint={location} "
            f"batch_id={batch_id} fix=let the query continue, then try again"
        )
    body = {"nextBatchWatermarkMs": offsets.facts.get("batchWatermarkMs", 0)}
    return b"v1\n" + json.dumps(body, separators=(",", ":")).encode()


def _check_movable(root: Path, chosen: Mapping[str, Path | bytes], location: str) -> None:
    """Refuse state that names its own directory, as transformWithState's does: it would continue with the old files."""
    for name, body in chosen.items():
        if "/_metadata/" in name and isinstance(body, Path) and str(root).encode() in body.read_bytes():
            raise InvalidInputError(
                f"the query's state names its own directory, so it cannot be used in another: checkpoint={location} "
                f"file={name} fix=save the table without this checkpoint"
            )


def _is_hidden(path: Path) -> bool:
    return path.name.startswith(".")
