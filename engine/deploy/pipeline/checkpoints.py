"""The progress of a pipeline, read from its checkpoint without Spark."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from engine.deploy.config.pipeline_config import FILE_FORMATS, FLUVIAL, KAFKA, PipelineConfig
from engine.deploy.pipeline.run_lock import OWN_FILES
from engine.kafka.offsets import from_json
from lsm.errors import InvalidInputError

_TRANSFORM_FILE: Final = f"{OWN_FILES}transform"
_HEADER_LINES: Final = 2  # of an offsets file: the version, then the batch's metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointState:
    """The progress of a query."""

    query_id: str
    batch_id: int | None  # of the last finished micro-batch; None: no batch has finished
    offsets: tuple[Any, ...]  # end offsets of that batch, one per source


def is_readable(location: str) -> bool:
    """Whether this process can read a checkpoint: only local ones."""
    return urlsplit(location).scheme in ("", "file")


def read_checkpoint(location: str) -> CheckpointState | None:
    """The state of a checkpoint; None when no query has used it yet.

    Raises:
        InvalidInputError: the directory is not a checkpoint, or cannot be read.
    """
    root = Path(location.removeprefix("file://"))
    if not (root / "metadata").exists():
        if root.is_dir() and any(not each.name.startswith(OWN_FILES) for each in root.iterdir()):
            raise InvalidInputError(
                f"the directory is not a checkpoint, and not empty: checkpoint={location} fix=use another directory"
            )
        return None
    try:
        query_id = str(json.loads((root / "metadata").read_text())["id"])
        done = [int(path.name) for path in (root / "commits").glob("*") if path.name.isdigit()]
        batch_id = max(done, default=None)
        lines = [] if batch_id is None else (root / "offsets" / str(batch_id)).read_text().splitlines()
        offsets = tuple(json.loads(line) for line in lines[_HEADER_LINES:] if line != "-")
    except (OSError, ValueError, KeyError) as error:
        raise InvalidInputError(
            f"the checkpoint cannot be read: checkpoint={location} reason={error} fix=use another directory"
        ) from error
    return CheckpointState(query_id=query_id, batch_id=batch_id, offsets=offsets)


def note_transform(location: str, pipeline: PipelineConfig) -> None:
    """Note in a checkpoint on this machine how its rows are transformed from now on."""
    if is_readable(location):
        with suppress(OSError):  # a plan then says nothing about it
            (Path(location.removeprefix("file://")) / _TRANSFORM_FILE).write_text(_transform_of(pipeline))


def has_other_transform(location: str, pipeline: PipelineConfig) -> bool:
    """Whether the last run of a checkpoint transformed rows by other queries or functions; False: nothing is noted."""
    try:
        return (Path(location.removeprefix("file://")) / _TRANSFORM_FILE).read_text() != _transform_of(pipeline)
    except OSError:
        return False


def _transform_of(pipeline: PipelineConfig) -> str:
    """A hash of the queries, and names of functions, between a source and its tables."""
    steps = [[each.sql and each.sql.strip(), each.python] for each in pipeline.transform]
    targets = [
        [out.table, [[each.sql and each.sql.strip(), each.python] for each in out.transform]]
        for out in pipeline.outputs
        if out.transform
    ]
    return blake2b(json.dumps([steps, targets]).encode(), digest_size=16).hexdigest()


def source_difference(state: CheckpointState, source_format: str, topics: tuple[str, ...]) -> str | None:
    """Why a pipeline cannot resume from a checkpoint; None: it can.

    Args:
        state: state of the checkpoint.
        source_format: format of the pipeline's source.
        topics: topics of the source; () for a source without topics.
    """
    kinds = {_kind(offset) for offset in state.offsets} - {None}
    wanted = "files" if source_format in FILE_FORMATS else source_format
    if kinds and wanted in (KAFKA, FLUVIAL, "files") and wanted not in kinds:
        return (
            f"the checkpoint is of another source: checkpoint_has={', '.join(sorted(map(str, kinds)))} job_has={wanted}"
        )
    known = {topic for offset in state.offsets if _kind(offset) == KAFKA for topic, _ in from_json(offset)}
    if wanted == KAFKA and known and not known.intersection(topics):
        return f"the checkpoint is of other topics: checkpoint_has={sorted(known)} job_has={list(topics)}"
    return None


def _kind(offset: Any) -> str | None:
    if not isinstance(offset, Mapping):
        return None
    if {"version", "phase", "snapshot"} <= offset.keys():
        return FLUVIAL
    if "logOffset" in offset:
        return "files"
    is_positions = offset and all(isinstance(each, Mapping) for each in offset.values())
    return KAFKA if is_positions else None
