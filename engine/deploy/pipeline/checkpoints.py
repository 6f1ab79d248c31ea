"""Whether a pipeline can resume from a checkpoint, and whether it transforms rows as before."""

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

from engine.checkpoint.checkpoint_files import OWN_FILES, CheckpointState, checkpoint_root, is_readable
from engine.deploy.config.pipeline_config import FILE_FORMATS, FLUVIAL, KAFKA, PipelineConfig
from engine.kafka.offsets import from_json
from engine.stream.position.position import Position

_TRANSFORM_FILE: Final = f"{OWN_FILES}transform"


def note_transform(location: str, pipeline: PipelineConfig) -> None:
    """Note in a checkpoint on this machine how its rows are transformed from now on."""
    if is_readable(location):
        with suppress(OSError):  # a plan then says nothing about it
            (checkpoint_root(location) / _TRANSFORM_FILE).write_text(_transform_of(pipeline))


def has_other_transform(location: str, pipeline: PipelineConfig) -> bool:
    """Whether the last run of a checkpoint transformed rows by other queries or functions; False: nothing is noted."""
    if not is_readable(location):
        return False
    try:
        return (checkpoint_root(location) / _TRANSFORM_FILE).read_text() != _transform_of(pipeline)
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
    if Position.is_in(offset):
        return FLUVIAL
    if "logOffset" in offset:
        return "files"
    is_positions = offset and all(isinstance(each, Mapping) for each in offset.values())
    return KAFKA if is_positions else None
