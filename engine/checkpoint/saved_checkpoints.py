"""Checkpoints of the queries that write a table: saved with a savepoint, and restored so that a query continues there.

A snapshot records which micro-batch of which query wrote it. So the saved snapshot defines the position of each query,
and the checkpoint is saved as of that batch. A restored checkpoint gets a new query id: after a rollback the table
still remembers later batches of the old id, and would skip the new batches as duplicates.
"""

import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from engine.checkpoint.checkpoint_files import METADATA_FILE, CheckpointFiles, checkpoint_root, files_as_of, query_id_of
from filestore.commit.committable import BATCH_IDENTIFIER
from filestore.commit.expired_commits import ExpiredCommits
from filestore.commit.history import CommitHistory
from filestore.refs.savepoint_files import CHECKPOINT_PREFIX, SavedCheckpoint, Savepoint
from filestore.snapshot.snapshot import Snapshot
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError, UnavailableError
from lsm.nearest_names import names_text
from lsm.undo import undoing

_CHUNK_BYTES: Final = 8 << 20
_UNDER: Final = "="  # separates a commit user from its checkpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPlace:
    """A checkpoint to save."""

    location: str
    commit_user: str  # of the query's commits to the table

    @classmethod
    def parse(cls, text: str) -> "CheckpointPlace":
        """``DIRECTORY``, or ``USER=DIRECTORY`` for a query with ``write.stream.commit-user``.

        Raises: InvalidInputError when the directory is not a checkpoint.
        """
        user, mark, location = text.strip().partition(_UNDER)
        if not mark or "/" in user:
            return cls(location=text.strip(), commit_user=query_id_of(text.strip()))
        return cls(location=location, commit_user=user)


def keep_checkpoint(
    store: TableStore, snapshot: Snapshot, place: CheckpointPlace, *, wait_ms: int = 10_000
) -> SavedCheckpoint:
    """Copy a checkpoint, as of the query's last batch in a snapshot, next to the table's savepoints.

    Args:
        store: the table that the query writes.
        snapshot: a snapshot of the table.
        place: the checkpoint.
        wait_ms: how long to wait for Spark to record a stateful batch.

    Raises:
        InvalidInputError: the query has not written this table, or its checkpoint cannot be saved.
        UnavailableError: Spark has not recorded the batch yet; try again.
        CorruptDataError: the checkpoint does not go back to the batch.
    """
    batch_id = newest_batch(store, snapshot, place.commit_user)
    if batch_id is None:
        raise InvalidInputError(
            f"the query has written nothing into the table: table={store.name} snapshot={snapshot.id} "
            f"commit_user={place.commit_user} checkpoint={place.location} "
            "fix=name the checkpoint of a query that writes it, as USER=DIRECTORY if it sets write.stream.commit-user"
        )
    found = files_as_of(place.location, batch_id, sleep=store.clock.sleep, wait_ms=wait_ms)
    directory = f"{CHECKPOINT_PREFIX}{store.names.uuid()}"
    names = []
    for name, body in found.files.items():
        target = f"{store.paths.savepoint_dir}/{directory}/{name}"
        with _unless_gone(name, place.location):
            if isinstance(body, bytes):
                store.io.write_new(target, body)
            else:
                _copy_in(store, body, target)
            names.append(name)
    return SavedCheckpoint(
        query_id=found.query_id,
        commit_user=place.commit_user,
        batch_id=batch_id,
        location=place.location,
        directory=directory,
        files=tuple(names),
        sources=found.sources,
    )


def keeping(store: TableStore, places: Sequence[CheckpointPlace]) -> Callable[[Snapshot], list[SavedCheckpoint]]:
    """The callback for ``create_savepoint`` that saves the given checkpoints."""
    return lambda snapshot: [keep_checkpoint(store, snapshot, place) for place in places]


def newest_batch(store: TableStore, snapshot: Snapshot, commit_user: str) -> int | None:
    """The newest batch of a query in a snapshot; None when it has none."""
    found = CommitHistory(store, commit_user).newest(snapshot)
    if found is not None and found.commit_identifier != BATCH_IDENTIFIER:
        return found.commit_identifier
    return ExpiredCommits(store).newest(commit_user)


def chosen_checkpoint(savepoint: Savepoint, query: str | None) -> SavedCheckpoint:
    """One of a savepoint's checkpoints.

    Args:
        savepoint: the savepoint.
        query: query id, commit user or location of the checkpoint; None when the savepoint has only one.

    Raises:
        InvalidInputError: no checkpoint matches, or several do.
    """
    names = [each.query_id for each in savepoint.checkpoints]
    fits = [
        each
        for each in savepoint.checkpoints
        if query is None or query in (each.query_id, each.commit_user, each.location)
    ]
    if len(fits) != 1:
        word = "keeps no such checkpoint" if not fits else "keeps several checkpoints"
        raise InvalidInputError(
            f"the savepoint {word}: savepoint={savepoint.id} query={query} "
            f"{names_text('queries', query or '', names)} "
            "fix=save it with checkpoints, and name one of its queries"
        )
    return fits[0]


def restore_saved_checkpoint(store: TableStore, kept: SavedCheckpoint, directory: str) -> str:
    """Create a checkpoint from which a query continues after the saved batch.

    Args:
        store: the table of the savepoint.
        kept: a checkpoint of the savepoint.
        directory: missing or empty, on this machine.

    Returns:
        The new query id.

    Raises:
        InvalidInputError: the directory is not empty.
    """
    source = f"{store.paths.savepoint_dir}/{kept.directory}"
    return _written(
        directory, store.names.uuid(), {name: partial(_copy_out, store, f"{source}/{name}") for name in kept.files}
    )


def rewind_saved_checkpoint(store: TableStore, found: CheckpointFiles, directory: str) -> str:
    """Create a checkpoint from which a query continues after an earlier batch; see ``restore_saved_checkpoint``."""
    return _written(
        directory,
        store.names.uuid(),
        {
            name: partial(_write, body) if isinstance(body, bytes) else partial(_copy, name, found.location, body)
            for name, body in found.files.items()
        },
    )


def _written(directory: str, query_id: str, bodies: Mapping[str, Callable[[Path], object]]) -> str:
    """Assemble a checkpoint in a temporary directory and rename it, so that it appears as a whole."""
    target = checkpoint_root(directory)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InvalidInputError(
            f"the directory is in use, a checkpoint needs an empty one: directory={directory} fix=take another one"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    growing = target.parent / f".{target.name}.{query_id}.tmp"
    with undoing(lambda: shutil.rmtree(growing, ignore_errors=True)):
        for name, put in bodies.items():
            path = growing / name
            path.parent.mkdir(parents=True, exist_ok=True)
            put(path)
        _write(json.dumps({"id": query_id}, separators=(",", ":")).encode(), growing / METADATA_FILE)
        growing.replace(target)
    return query_id


@contextmanager
def _unless_gone(name: str, location: str) -> Iterator[None]:
    """Skip state versions that a running query deletes because no retained batch needs them; other files must exist.

    Raises: UnavailableError.
    """
    try:
        yield
    except FileNotFoundError as error:
        if not name.startswith("state/"):
            raise UnavailableError(
                f"the checkpoint changed while it was copied: checkpoint={location} file={name} fix=run it again"
            ) from error


def _copy(name: str, location: str, source: Path, target: Path) -> None:
    with _unless_gone(name, location):
        shutil.copyfile(source, target)


def _copy_in(store: TableStore, source: Path, target: str) -> None:
    with source.open("rb") as reader, store.io.open_output(target) as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            writer.write(chunk)
    store.io.sync(target)


def _copy_out(store: TableStore, source: str, target: Path) -> None:
    with store.io.open_input(source) as reader, target.open("wb") as writer:
        while chunk := reader.read(_CHUNK_BYTES):
            writer.write(chunk)


def _write(body: bytes, target: Path) -> None:
    target.write_bytes(body)
