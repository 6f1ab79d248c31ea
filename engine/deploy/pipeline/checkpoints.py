"""Whether a pipeline can resume from a checkpoint."""

from collections.abc import Mapping
from typing import Any

from engine.checkpoint.checkpoint_files import CheckpointState
from engine.deploy.config.pipeline_config import FILE_FORMATS, FLUVIAL, KAFKA
from engine.kafka.offsets import from_json


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
