"""The logs that a snapshot left behind when a branch took it over: where in them it stood.

A branch begins with a snapshot of its parent, without the parent's log. A stream of the parent that has delivered
exactly that snapshot, as one with a rewound checkpoint, can continue on the branch: it is known to be there because its
offsets are these.
"""

from collections.abc import Mapping
from typing import Any, Final

import orjson

from filestore.snapshot.snapshot import Snapshot
from lsm.errors import CorruptDataError

LEFT_LOGS_KEY: Final = "fluvial.left-logs"
"""Snapshot property of branches: JSON object, by id of the topic the next offset of each bucket."""


def left_logs(snapshot: Snapshot) -> Mapping[str, Mapping[int, int]]:
    """Next offsets by bucket, by id of the topic; {} when the snapshot has left no log. Raises: CorruptDataError."""
    text = snapshot.properties.get(LEFT_LOGS_KEY)
    if text is None:
        return {}
    try:
        body: Mapping[str, Mapping[str, Any]] = orjson.loads(text)
        return {topic: {int(bucket): int(at) for bucket, at in each.items()} for topic, each in body.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise CorruptDataError(
            f"snapshot property cannot be read: snapshot={snapshot.id} {LEFT_LOGS_KEY}={text}"
        ) from error


def leaving_log(snapshot: Snapshot, topic_id: str | None, generation: int) -> Mapping[str, str]:
    """The property of a snapshot that leaves a log; {} when it has no place in it.

    Args:
        snapshot: as it is on the branch with the log.
        topic_id: of the log; None: there is none.
        generation: of the log, see ``Snapshot.log_generation``.
    """
    if topic_id is None or not snapshot.log_offsets or snapshot.log_generation != generation:
        return {}
    left = {**left_logs(snapshot), topic_id: snapshot.log_offsets}
    body = {topic: {str(bucket): at for bucket, at in sorted(each.items())} for topic, each in left.items()}
    return {LEFT_LOGS_KEY: orjson.dumps(body).decode()}
