"""Readers on a Spark that gives a source neither the start of a batch nor a limit, as releases before 4.2 do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.datasource import DataSourceStreamReader

from engine.checkpoint.admission import CHECKPOINT, ReadMaxRows, fitting_reader, without_checkpoint
from engine.checkpoint.checkpoint_files import read_checkpoint, recorded_offsets
from lsm.errors import CorruptDataError, InvalidInputError

LIMIT = 3


class Counting(DataSourceStreamReader):
    """A source of the numbers below ``end``, at most three a batch."""

    def __init__(self, end: int = 0) -> None:
        self.end = end
        self.committed: list[Any] = []
        self.is_stopped = False

    def initialOffset(self) -> dict[str, Any]:
        return {"n": 0}

    def getDefaultReadLimit(self) -> ReadMaxRows:
        return ReadMaxRows(LIMIT)

    def latestOffset(self, start: dict[str, Any], limit: ReadMaxRows) -> dict[str, Any]:
        return {"n": min(self.end, start["n"] + limit.max_rows)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        return [(start["n"], end["n"])]

    def read(self, partition: Any) -> Iterator[Any]:
        yield from range(*partition)

    def commit(self, end: dict[str, Any]) -> None:
        self.committed.append(end)

    def stop(self) -> None:
        self.is_stopped = True


class OldSpark:
    """What Spark 4.1 does with a source: its calls, and the files of its checkpoint."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for each in ("offsets", "commits"):
            (root / each).mkdir(parents=True, exist_ok=True)
        (root / "metadata").write_text(json.dumps({"id": "q"}))

    def opened(self, source: Counting) -> DataSourceStreamReader:
        return fitting_reader(source, {"CHECKPOINTLOCATION": str(self.root)}, has_admission=False)

    def planned(self) -> list[dict[str, Any]]:
        names = sorted((self.root / "offsets").iterdir(), key=lambda each: int(each.name))
        return [json.loads(each.read_text().splitlines()[2]) for each in names]

    def batch(self, reader: DataSourceStreamReader, *, fails_in_batch: bool = False) -> list[int]:
        """The rows of the next batch; one that was planned and is not finished is run again."""
        ends = self.planned()
        done = len(list((self.root / "commits").iterdir()))
        if done == len(ends):
            end = reader.latestOffset()
            if ends and end == ends[-1]:
                return []
            (self.root / "offsets" / str(done)).write_text(f"v1\n{{}}\n{json.dumps(end)}\n")
            ends.append(end)
        if fails_in_batch:
            return []
        start = ends[done - 1] if done else reader.initialOffset()
        rows = [row for part in reader.partitions(start, ends[done]) for row in reader.read(part)]
        (self.root / "commits" / str(done)).write_text("v1\n{}")
        reader.commit(ends[done])
        return rows


@given(steps=st.lists(st.tuples(st.integers(0, 8), st.booleans(), st.booleans()), max_size=12))
@settings(deadline=None)
def test_every_row_is_read_once_in_batches_of_the_limit_through_restarts_and_batches_that_fail(
    steps: list[tuple[int, bool, bool]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    spark, source = OldSpark(tmp_path_factory.mktemp("query")), Counting()
    reader, found = spark.opened(source), []
    for new, restarts, fails in steps:
        source.end += new
        if restarts:
            source = Counting(source.end)
            reader = spark.opened(source)
        rows = spark.batch(reader, fails_in_batch=fails)
        assert len(rows) <= LIMIT
        found += rows
        assert found == list(range(len(found)))
    for _ in range(source.end):
        found += spark.batch(reader)
    assert found == list(range(source.end))


def test_a_source_that_cannot_know_where_its_query_stands_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="option=checkpointLocation fix='give readStream"):
        fitting_reader(Counting(), {}, has_admission=False)


def test_of_several_sources_none_knows_which_is_its_own(tmp_path: Path) -> None:
    spark = OldSpark(tmp_path)
    reader = spark.opened(Counting(5))
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"n": 3}\n-\n')
    with pytest.raises(InvalidInputError, match=r"several sources needs Spark 4.2.* sources=2 fix="):
        reader.latestOffset()


def test_a_spark_that_gives_start_and_limit_gets_the_reader_itself() -> None:
    source = Counting()
    assert fitting_reader(source, {}, has_admission=True) is source
    assert without_checkpoint({"checkpointlocation": "/x", "a": "1"}) == {"a": "1"}
    assert CHECKPOINT == "checkpointLocation"  # as writeStream names it


def test_a_reader_that_ends_is_stopped(tmp_path: Path) -> None:
    source = Counting()
    OldSpark(tmp_path).opened(source).stop()
    assert source.is_stopped


def test_the_newest_planned_batch_counts_by_its_number(tmp_path: Path) -> None:
    OldSpark(tmp_path)
    assert recorded_offsets(str(tmp_path)) == ()
    for batch_id in (2, 9, 10):
        (tmp_path / "offsets" / str(batch_id)).write_text(f'v1\n{{}}\n{{"n": {batch_id}}}\n')
    (tmp_path / "offsets" / ".11.tmp").write_text("half")
    assert recorded_offsets(f"file://{tmp_path}") == ({"n": 10},)
    (tmp_path / "commits" / "9").write_text("v1\n{}")
    state = read_checkpoint(f"file://{tmp_path}")
    assert state is not None
    assert (state.batch_id, state.offsets) == (9, ({"n": 9},))
    (tmp_path / "offsets" / "10").write_text("v1\n{}\n{")
    with pytest.raises(CorruptDataError, match="offsets of a batch cannot be read"):
        recorded_offsets(str(tmp_path))
