"""Where the rows of a batch write come from.

The job is ``pipeline.name``, given to the write or set in the session; else each statement is a job of its own: the
name of the Spark application, or of the program, and the table that it writes. The barrier is derived from the time and
the commit user, so that every write has its own.
"""

import os
import sys
from typing import TYPE_CHECKING, Any, Final

from engine.lineage.origins import JOB_KEY, CommitOrigin, SourceRead, batch_barrier
from engine.lineage.recording import lineage_of_table
from engine.lineage.store.entities import LONGEST_NAME
from filestore.table_store import TableStore

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_UNNAMED: Final = "python"


def batch_origin(
    store: TableStore, job: str | None, commit_user: str, frame: "DataFrame | None" = None
) -> CommitOrigin:
    """The origin of the rows of one write.

    Args:
        store: the table that is written.
        job: that the write names; None: the session's, or the program's for this table.
        commit_user: of this write alone.
        frame: the rows as a Spark frame; None: they are from this process.
    """
    reads: tuple[SourceRead, ...] = ()
    if frame is not None and lineage_of_table(store) is not None:  # makes Spark plan the frame
        reads = reads_beside(store, frame)
    named = job or (None if frame is None else session_job(frame.sparkSession))
    barrier_id = batch_barrier(store.clock.now_ms(), commit_user)
    return CommitOrigin(
        job=fitting_job(named) if named else unnamed_job(_application(frame) or _program(), store.name),
        barrier_id=barrier_id,
        reads=reads,
        run=fitting_job(commit_user),
    )


def reads_beside(store: TableStore, frame: "DataFrame") -> tuple[SourceRead, ...]:
    """What a frame reads, except from the table itself, which is changed in place and so not its own dependency."""
    from engine.lineage.frame_sources import reads_of_frame

    own = (None if store.catalog is None else store.catalog.warehouse, store.name)
    return tuple(each for each in reads_of_frame(frame) if (each.warehouse, each.table) != own)


def fitting_job(name: str) -> str:
    """A name truncated to what every lineage store can keep."""
    return name.replace("\0", "")[:LONGEST_NAME] or _UNNAMED


def unnamed_job(program: str, table: str) -> str:
    """The job of a batch write that is not named: statements of one session that write other tables are others."""
    suffix = f":{table}"
    return f"{fitting_job(program)[: max(LONGEST_NAME - len(suffix), 0)]}{suffix}"[:LONGEST_NAME]


def session_job(session: Any) -> str | None:
    """``pipeline.name`` set in a Spark session; None when it is not set."""
    return session.conf.get(JOB_KEY, None) or None


def _application(frame: "DataFrame | None") -> str | None:
    return None if frame is None else frame.sparkSession.conf.get("spark.app.name", None) or None


def _program() -> str:
    return os.path.basename(sys.argv[0] if sys.argv else "") or _UNNAMED
