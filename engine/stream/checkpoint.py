"""The position of a stream as Spark's checkpoint has it, read from outside the query."""

import json
from pathlib import Path

from engine.stream.position import Position
from lsm.errors import InvalidInputError

_HEADER_LINES = 2  # version of the file, and of the batch


def committed_position(directory: str) -> Position | None:
    """What a query has processed for sure; None before its first batch.

    Args:
        directory: its ``checkpointLocation``, on this machine.

    Raises:
        InvalidInputError: no checkpoint, or one of a query that does not read a Fluvial table.
    """
    root = Path(directory.removeprefix("file://"))
    if not (root / "metadata").exists():
        raise InvalidInputError(f"no checkpoint of a streaming query: checkpoint={directory} fix=look at the path")
    done = [int(path.name) for path in (root / "commits").glob("*") if path.name.isdigit()]
    if not done:
        return None
    for line in (root / "offsets" / str(max(done))).read_text().splitlines()[_HEADER_LINES:]:
        try:
            body = json.loads(line)
        except ValueError:
            continue
        if isinstance(body, dict) and {"version", "phase", "snapshot"} <= body.keys():
            return Position.from_json(body).place
    raise InvalidInputError(f"the query does not read a table of Fluvial: checkpoint={directory}")
