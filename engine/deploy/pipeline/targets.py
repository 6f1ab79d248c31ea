"""The targets of a pipeline's micro-batches: one table or several, each written exactly once.

Every table remembers its batches, so a batch that reached only some tables is written to the others when it is
repeated.
"""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from engine.deploy.config.pipeline_config import TargetConfig, TransformConfig
from engine.deploy.pipeline.transforms import transformed
from engine.kafka.dead_letters import RowLetters
from engine.kafka.options import KafkaSourceOptions
from engine.runtime.expected_rows import DEAD_LETTER, EXPECT_KEY, Expectation, check_broken, note_of, report_broken
from engine.runtime.spark_messages import fluvial_error
from engine.table import Table
from engine.types.quoting import quoted
from engine.types.rows import ROW_KIND_COLUMN, UNAVAILABLE_COLUMN
from engine.types.spark_types import spark_schema
from engine.versions.expectations import condition_columns
from engine.write.sink import StreamSink, sink
from filestore.predicate.row_rules import EXAMPLES
from filestore.schema.table_schema import TableSchema
from lsm.errors import FluvialError


class StopRequestedError(FluvialError):
    """No further micro-batch is started, because the job is stopping."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A table, and the options with which a pipeline writes it."""

    table: Table
    steps: Sequence[TransformConfig]
    write: StreamSink
    rules: Sequence[Expectation] = ()
    letters: RowLetters | None = None  # where rows go that break a rule
    broken: Counter[str] = field(default_factory=Counter)  # rows that did, by rule, in this run

    def put(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch: the rows that its rules let through. Raises: BrokenRowsError; like the sink."""
        if not self.rules:
            self.write(frame, batch_id)
            return
        is_kept_here = not frame.is_cached
        if is_kept_here:
            frame.persist()  # counted first, then written
        try:
            held, notes = self._held(frame, batch_id)
            self.write(held, batch_id, notes)
        finally:
            if is_kept_here:
                frame.unpersist()

    def _held(self, frame: DataFrame, batch_id: int) -> tuple[DataFrame, dict[str, str]]:
        looked_at, breaks = _breaking(frame, self.rules, self.table.schema)
        row = looked_at.agg(F.count_if(_is_row(frame)), *(F.count_if(each) for each in breaks)).collect()[0]
        count, broken = int(row[0]), [int(each) for each in row[1:]]
        examples = [
            [] if rule.allows(number, count) else _examples(looked_at, rule, each, self.table.schema)
            for rule, each, number in zip(self.rules, breaks, broken, strict=True)
        ]
        check_broken(self.table.name, self.rules, broken, count, examples)
        sent = [pair for pair in zip(self.rules, breaks, strict=True) if pair[0].on_fail == DEAD_LETTER]
        if self.letters is not None and any(
            number for rule, number in zip(self.rules, broken, strict=True) if rule.on_fail == DEAD_LETTER
        ):
            reasons = F.concat_ws("; ", *(F.when(each, F.lit(rule.reason)) for rule, each in sent))
            refused = looked_at.select("*", reasons.alias(_REASON)).filter(reduce(or_, (each for _, each in sent)))
            rows = (each.asDict(recursive=True) for each in refused.toLocalIterator())
            letters = ((each, each.pop(_REASON)) for each in rows)
            self.letters.send_once(letters, query=self.write.commit_user(frame), batch_id=batch_id)
        report_broken(self.table.name, self.rules, broken, count, batch_id)
        self.broken.update({rule.name: number for rule, number in zip(self.rules, broken, strict=True)})
        gone = [
            each for rule, each, number in zip(self.rules, breaks, broken, strict=True) if number and rule.leaves_out
        ]
        columns = map(F.col, map(quoted, frame.columns))
        held = _without(looked_at, gone, self.table.schema).select(*columns) if gone else frame
        return held, {EXPECT_KEY: note_of(self.rules, broken, count)}


_REASON: Final = "_fluvial_reason"
_GONE: Final = "_fluvial_gone"
_ORDER: Final = "_fluvial_order"
_PART: Final = "_fluvial_part"
_GONE_KINDS: Final = ("-U", "-D", "-T")


def _is_row(frame: DataFrame) -> Column:
    """Whether the table will have this row of the frame: it is no delete, and no old row of an update."""
    return ~F.col(ROW_KIND_COLUMN).isin(*_GONE_KINDS) if ROW_KIND_COLUMN in frame.columns else F.lit(True)


def _breaking(
    frame: DataFrame, rules: Sequence[Expectation], schema: TableSchema
) -> tuple[DataFrame, Sequence[Column]]:
    """A frame with all columns of its table, and for each rule whether a row breaks it: true or false, never null."""
    given = {name.lower() for name in frame.columns}
    missing = [each for each in schema.fields if each.name.lower() not in given]
    types = {each.name: each.dataType for each in spark_schema(missing).fields}
    looked_at = frame.withColumns({name: F.lit(None).cast(kind) for name, kind in types.items()}) if types else frame
    is_row = _is_row(frame)
    try:
        breaks = [
            F.coalesce(~F.expr(f"({rule.condition})"), F.lit(False)) & is_row & ~_is_unknown(frame, rule)
            for rule in rules
        ]
        for each in breaks:
            looked_at.select(each)
    except PySparkException as error:
        texts = ", ".join(f"{rule.name}: {rule.condition}" for rule in rules)
        raise fluvial_error(error, f"rules cannot be applied: expect='{texts}'") from error
    return looked_at, breaks


def _without(frame: DataFrame, gone: Sequence[Column], schema: TableSchema) -> DataFrame:
    """A frame without some rows, and without the old rows (-U) of updates whose new rows are among them.

    The new row of an update is the next one of its key; in a table without a key, the next one of its partition.
    """
    if ROW_KIND_COLUMN not in frame.columns:
        return frame.filter(~reduce(or_, gone))
    marked = frame.withColumns(
        {_GONE: reduce(or_, gone), _ORDER: F.monotonically_increasing_id(), _PART: F.spark_partition_id()}
    )
    of_key = Window.partitionBy(*map(quoted, schema.primary_keys or [_PART])).orderBy(_ORDER)
    is_old = (F.col(ROW_KIND_COLUMN) == "-U") & F.lead(_GONE, 1, False).over(of_key)
    return marked.withColumn(_GONE, F.col(_GONE) | is_old).filter(~F.col(_GONE))


def _is_unknown(frame: DataFrame, rule: Expectation) -> Column:
    """Whether the source left out a value that a rule is about: that is no null, but the value of the row before."""
    columns = [F.lit(each.lower()) for each in condition_columns(rule.condition)]
    if UNAVAILABLE_COLUMN not in frame.columns or not columns:
        return F.lit(False)
    names = F.transform(UNAVAILABLE_COLUMN, F.lower)
    return F.coalesce(F.arrays_overlap(names, F.array(*columns)), F.lit(False))


def _examples(frame: DataFrame, rule: Expectation, breaks: Column, schema: TableSchema) -> list[object]:
    shown = [name for name in frame.columns if name in {*schema.primary_keys, *condition_columns(rule.condition)}]
    rows = frame.filter(breaks).select(*map(F.col, map(quoted, shown or frame.columns))).limit(EXAMPLES).collect()
    return [each.asDict() for each in rows]


def _letters(source: KafkaSourceOptions | None, table: Table) -> RowLetters | None:
    """The dead letters for updates that cannot be completed; the same as those for bad records."""
    if source is None or source.dead_letter_topic is None:
        return None
    return RowLetters(
        properties=source.properties,
        topic=source.dead_letter_topic,
        table=table.name,
        key_names=table.schema.primary_keys,
    )


class BatchWrite:
    """The ``foreachBatch`` function of one run of one query."""

    def __init__(self, pipeline: str, targets: Sequence[Target]) -> None:
        self._pipeline = pipeline
        self.targets = tuple(targets)
        self._lock = threading.Lock()
        self._is_closed = False
        self._started_s: float | None = None

    @classmethod
    def to(
        cls,
        pipeline: str,
        outputs: Sequence[TargetConfig],
        tables: Sequence[Table],
        source: KafkaSourceOptions | None = None,
    ) -> "BatchWrite":
        """A write to the tables of a pipeline.

        Args:
            pipeline: its name.
            outputs: its targets.
            tables: the table of each.
            source: topics that it reads, with where bad records go; None: none.

        Raises: InvalidInputError for an unknown sink option.
        """
        return cls(
            pipeline,
            [
                Target(
                    table=table,
                    steps=output.transform,
                    write=sink(table, output.options, refuse=_letters(source, table)),
                    rules=[rule.rule(name) for name, rule in output.expect.items()],
                    letters=_letters(source, table),
                )
                for output, table in zip(outputs, tables, strict=True)
            ],
        )

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        """Write one micro-batch to every table.

        Raises:
            StopRequestedError: the batch was not started; the next run writes it.
        """
        with self._lock:
            if self._is_closed:
                raise StopRequestedError(f"the job is stopping: pipeline={self._pipeline} batch_id={batch_id}")
            self._started_s = time.monotonic()
        try:
            self._write(frame, batch_id)
        finally:
            self._started_s = None

    def refuse_new_batches(self) -> None:
        """Let the running micro-batch finish, and start no other."""
        with self._lock:
            self._is_closed = True

    @property
    def batch_seconds(self) -> float:
        """How long the running micro-batch has taken; 0 when none is running."""
        started_s = self._started_s
        return 0.0 if started_s is None else time.monotonic() - started_s

    def close(self) -> None:
        """Wait for running compactions. Call it after the query has ended, before Spark stops."""
        for target in self.targets:
            target.write.close()

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        if len(self.targets) == 1:
            self._write_one(self.targets[0], frame, batch_id)
            return
        frame.persist()  # otherwise every table would read the source again
        try:
            for target in self.targets:
                self._write_one(target, frame, batch_id)
        finally:
            frame.unpersist()

    def _write_one(self, target: Target, frame: DataFrame, batch_id: int) -> None:
        target.put(transformed(frame, target.steps, pipeline=self._pipeline), batch_id)
