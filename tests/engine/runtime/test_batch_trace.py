"""A trace: steps that threads and processes write down, and the spans of time that they stand for."""

import json
import pickle
import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from threading import Thread
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from engine.drawing.timeline import ms_text, ticks_of, timeline_svg, totals_of
from engine.request.writer_options import NO_OPTIONS
from engine.runtime.batch_trace import BatchTrace, Span, batch_trace, newest_traces
from engine.runtime.step_file import TRIGGER, StepFile, TimedStep, read_steps
from engine.runtime.steps import Step, StepEvent, ignore
from engine.write.session import LocalRunner, Upkeep, WriteSession
from lsm.errors import CorruptDataError, InvalidInputError
from tests.support.pictures import boxes_of, check_words, labels_of
from tests.support.warehouses import new_table

SCHEMA = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.int64())])
Fluvial = Callable[..., tuple[int, str, str]]


def at(us: int, step: str, *, thread: int = 1, batch: int = 7, bucket: int | None = None, **facts: int) -> TimedStep:
    return TimedStep(
        table="db.t", batch=batch, step=step, at_us=us, process="host/1", thread=thread, bucket=bucket, facts=facts
    )


STEPS = (
    at(1_000, TRIGGER, latestOffset=2, walCommit=3, addBatch=40, commitOffsets=1, triggerExecution=46),
    at(7_000, "batch-given"),
    at(9_000, "batch-started"),
    at(19_000, "rows-collected", rows=100),
    at(20_000, "part-started", thread=2),
    at(20_500, "part-started", thread=3),
    at(22_000, "bucket-fenced", thread=2, bucket=0),
    at(23_000, "rows-written", thread=2),
    at(24_000, "rows-written", thread=3),
    at(26_000, "files-flushed", thread=2),
    at(28_000, "log-committed", thread=2, bucket=0),
    at(28_100, "part-done", thread=2),
    at(29_000, "part-done", thread=3),
    at(30_000, "tasks-done"),
    at(38_000, "table-committed"),
    at(38_500, "compaction-started", thread=9, tasks=1),
    at(41_000, "batch-done"),
    at(52_500, "compaction-done", thread=9),
)


def test_a_batch_is_spans_on_lanes() -> None:
    """Spark's phases follow each other; a thread's step ends what it did since its step before."""
    trace = batch_trace(STEPS)
    assert (trace.table, trace.batch, trace.rows, trace.us) == ("db.t", 7, 100, 46_000)
    assert [(each.lane, each.name, each.start_us, each.us) for each in trace.spans] == [
        ("Spark", "latestOffset", 0, 2_000),
        ("Spark", "walCommit", 2_000, 3_000),
        ("Spark", "addBatch", 5_000, 40_000),
        ("Spark", "commitOffsets", 45_000, 1_000),
        ("driver", "wait", 6_000, 2_000),
        ("driver", "rows by Spark", 8_000, 10_000),
        ("driver", "write", 18_000, 11_000),
        ("driver", "commit", 29_000, 8_000),
        ("driver", "after commit", 37_000, 3_000),
        ("part 1", "open log", 19_000, 2_000),
        ("part 1", "memtable", 21_000, 1_000),
        ("part 1", "flush", 22_000, 3_000),
        ("part 1", "log transaction", 25_000, 2_000),
        ("part 1", "close", 27_000, 100),
        ("part 2", "memtable", 19_500, 3_500),
        ("part 2", "close", 23_000, 5_000),
        ("compaction", "compaction", 37_500, 14_000),
    ]
    assert totals_of(trace.spans)["memtable"] == 4_500
    without_spark = batch_trace(STEPS[1:])
    assert (without_spark.lanes[0], without_spark.us) == ("driver", 34_000)


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_files_does_not_matter_and_an_attempt_that_failed_does_not_count(seed: int) -> None:
    chance = random.Random(seed)
    failed = [at(each.at_us - 100_000, each.step, thread=each.thread) for each in STEPS[1 : chance.randrange(2, 12)]]
    newer = [at(90_000, "batch-given", batch=8), at(91_000, "batch-started", batch=8)]  # not done
    mixed = [*STEPS, *failed, *newer]
    chance.shuffle(mixed)
    assert batch_trace(mixed) == batch_trace(STEPS)
    assert batch_trace(mixed, table="db.t", batch=7) == batch_trace(STEPS)


def test_a_batch_that_is_not_there_is_an_error_that_names_the_others() -> None:
    for wanted in ({"batch": 6}, {"table": "db.u"}):
        with pytest.raises(InvalidInputError, match=r"no such batch in the trace, .* known='db.t 7 to 7'"):
            batch_trace(STEPS, **wanted)  # type: ignore[arg-type]


def test_threads_write_whole_lines_that_are_read_again(tmp_path: Path) -> None:
    seen: list[StepEvent] = []
    steps = StepFile.of(str(tmp_path / "a" / "trace"), "db.t", seen.append)
    assert steps is not None

    def report(number: int) -> None:
        for batch in range(200):
            steps(StepEvent(step=Step.ROWS_WRITTEN, batch_id=batch, bucket=number, facts={"rows": batch}))

    threads = [Thread(target=report, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    found = list(read_steps(steps.directory))
    assert len(found) == len(seen) == 800
    by_thread = defaultdict(list)
    for step in found:
        assert step.facts == {"rows": step.batch}
        by_thread[step.bucket].append(step)
    assert sorted(by_thread) == [0, 1, 2, 3]
    for each in by_thread.values():
        assert [step.batch for step in each] == list(range(200))
        assert all(before.at_us <= after.at_us for before, after in pairwise(each))
    assert StepFile.of(None, "db.t", ignore) is None


def test_what_is_no_trace_is_refused_and_what_cannot_be_written_stops_nothing(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"no trace: directory=.* fix='run with trace.directory="):
        list(read_steps(str(tmp_path)))
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidInputError, match=r"a trace cannot be written: trace.directory=.*/file/x reason="):
        StepFile.of(str(tmp_path / "file" / "x"), "db.t", ignore)
    steps = StepFile.of(str(tmp_path / "trace"), "db.t", ignore)
    assert steps is not None
    steps(StepEvent(step=Step.BATCH_GIVEN, batch_id=1))
    [path] = (tmp_path / "trace").iterdir()
    with path.open("a") as file:
        file.write('{"table": "cut of')  # by a process that was killed
    assert [each.step for each in read_steps(steps.directory)] == ["batch-given"]
    with path.open("a") as file:
        file.write("\n")
    with pytest.raises(CorruptDataError, match=r"a line of a trace is no step: file=.* line=2"):
        list(read_steps(steps.directory))
    path.unlink()
    path.parent.rmdir()
    pickle.loads(pickle.dumps(steps))(StepEvent(step=Step.BATCH_DONE, batch_id=1))
    assert not path.parent.exists()


def test_a_session_of_one_process_is_traced(tmp_path: Path, fluvial: Fluvial) -> None:
    """Real batches: what a thread does is without a gap, and the command shows it as a list, as JSON, as a picture."""
    table = new_table(tmp_path / "warehouse", SCHEMA, key=["k"], options={"bucket": "2"})
    home = str(tmp_path / "trace")
    steps = StepFile.of(home, table.name, ignore)
    assert steps is not None
    session = WriteSession(
        table.files, LocalRunner(), commit_user="q", options=NO_OPTIONS, upkeep=Upkeep.STREAM,
        origin=lambda batch, rows: None, observe=steps,
    )  # fmt: skip
    with session:
        for batch in range(6):
            session.write([pa.record_batch([range(100), [batch] * 100], schema=SCHEMA)], batch_id=batch)
    trace = batch_trace(read_steps(home), table=table.name, batch=2)
    assert [each.name for each in trace.spans if each.lane == "driver"] == ["wait", "write", "commit", "after commit"]
    for lane in ("driver", "part"):
        own = [each for each in trace.spans if each.lane == lane]
        assert all(before.start_us + before.us == after.start_us for before, after in pairwise(own))
    assert sum(each.us for each in trace.spans if each.lane == "driver") == trace.us
    assert {"memtable", "flush"} <= {each.name for each in trace.spans if each.lane == "part"}
    assert any(each.step == Step.COMPACTION_DONE.value for each in read_steps(home))

    code, out, _ = fluvial("trace", home, "--batch", "2", "--json")
    assert (code, json.loads(out)["ms"]) == (0, trace.us / 1000)
    picture = tmp_path / "trace.svg"
    assert fluvial("trace", home, "--batch", "2", "--svg", str(picture))[0] == 0
    assert picture.read_text() == timeline_svg(trace)
    code, out, _ = fluvial("trace", home)
    assert code == 0
    assert f"{table.name}, batch 5" in out
    assert fluvial("trace", str(tmp_path))[0] == 2


@pytest.mark.parametrize("seed", range(5))
def test_a_picture_has_a_bar_for_each_span_and_legible_words(seed: int) -> None:
    chance = random.Random(seed)
    spans = [
        Span(lane=f"part {lane}", name=f"step {chance.randrange(9)}", start_us=start, us=chance.randrange(90_000))
        for lane in range(1, 5)
        for start in range(0, 800_000, 100_000)
    ]
    svg = timeline_svg(BatchTrace(table="db." + "t" * 90 * (seed % 2), batch=1, rows=10, spans=tuple(spans)))
    check_words(svg, "table")
    root = ET.fromstring(svg)
    colours = [f"l{number}" for number in range(7)]
    assert len(boxes_of(root, *colours)) == len(spans) + len(totals_of(spans))
    assert {f"part {lane}" for lane in range(1, 5)} <= {each.what for each in labels_of(root)}


@pytest.mark.parametrize("end_us", [1, 7, 999, 1_000, 123_456, 60_000_000, 10**12])
def test_ticks_are_few_round_numbers(end_us: int) -> None:
    ticks = ticks_of(end_us)
    assert ticks[0] == 0
    assert len(ticks) <= 8
    assert ticks[-1] <= end_us
    assert len(ticks) >= 2
    assert ms_text(end_us).endswith(" ms")


def test_the_end_of_a_long_trace_has_its_newest_batches(tmp_path: Path) -> None:
    """Whole lines alone, of as much as is asked for; the newest batch comes first, and one that is not done not."""
    steps = [
        step
        for batch in range(50)
        for step in (replace(each, batch=batch, at_us=each.at_us + 100_000 * batch) for each in STEPS)
    ]
    text = "".join(f"{each.to_json()}\n" for each in steps)
    (tmp_path / "host-1.steps.jsonl").write_text(text)
    whole = newest_traces(read_steps(str(tmp_path)), 100)
    assert [each.batch for each in whole] == [*range(49, -1, -1)]
    assert newest_traces(read_steps(str(tmp_path)), 3) == whole[:3]
    size = len(text.encode())
    for last in (size // 10, size // 10 + 1, size, size + 1):
        read = [*read_steps(str(tmp_path), last_bytes=last)]
        assert read == steps[len(steps) - len(read) :]
        assert abs(len(read) - len(steps) * min(last, size) / size) < 3
    assert [each.batch for each in newest_traces(steps[:-10], 1)] == [48]
