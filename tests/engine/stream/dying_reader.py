"""A reader that a test kills: python dying_reader.py HOME TABLE PHASE OPTIONS.

It reads batch after batch, and stands still in the first one of a phase: planned, read, neither put out nor committed.
Checkpoint and output are files; a batch that is run again replaces its output.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.support.streams import Query, Rows

REACHED = "reached"


def put_batch(path: Path, body: Any) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_text(json.dumps(body))
    os.replace(unfinished, path)


def restored(home: Path, table: str, options: dict[str, str]) -> Query:
    """The query with what the checkpoint has of it."""
    query, checkpoint = Query(home / "w", table, **options), home / "checkpoint.json"
    if checkpoint.exists():
        query.first, query.planned, query.committed = json.loads(checkpoint.read_text())
    return query


def phase_of(query: Query) -> str:
    """What the planned batch reads."""
    end = json.loads(query.planned[-1])
    start = json.loads(query.planned[-2]) if len(query.planned) > 1 else end.get("begin") or end
    places = {start["phase"], end["phase"]}
    return next(each for each in ("snapshot", "files", "log") if each in places)


def run_reader(home: Path, query: Query, stop_at: str | None = None) -> None:
    """Until nothing is left; with ``stop_at`` it does not return from a batch of that phase."""
    while query.plan():
        put_batch(home / "checkpoint.json", [query.first, query.planned, query.committed])
        rows = query.read()
        if phase_of(query) == stop_at:
            (home / REACHED).touch()
            time.sleep(600)
        put_batch(home / f"{len(query.planned):04}.json", rows)
        query.commit()
        put_batch(home / "checkpoint.json", [query.first, query.planned, query.committed])


def output(home: Path) -> Rows:
    """All that was put out, batch by batch."""
    return [row for path in sorted(home.glob("[0-9]*.json")) for row in json.loads(path.read_text())]


def main() -> None:
    home, table, phase, options = sys.argv[1:]
    run_reader(Path(home), restored(Path(home), table, json.loads(options)), phase)


if __name__ == "__main__":
    main()
