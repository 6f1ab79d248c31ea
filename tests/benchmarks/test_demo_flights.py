"""The change stream of the demonstration adds up to the data set, by any reader that does not use our code."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.demo.flights import KEY, SCHEMA, ChangeStream, FlightStep, change_stream, read_flights
from benchmarks.demo.readers import check_equal, expected_flights, fold_log, ordered_rows
from engine import Catalog
from engine.broker.broker import Broker
from engine.deploy.config.job_config import load_job
from engine.deploy.pipeline.table_changes import ensure_table
from lsm.errors import CorruptDataError
from tests.peers.agreement import Agreement

FLIGHTS = 4000
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def all_flights() -> pa.Table:
    return read_flights()


@pytest.fixture(scope="module")
def stream(all_flights: pa.Table) -> ChangeStream:
    return change_stream(all_flights.slice(0, FLIGHTS))


def records(stream: ChangeStream, rows_per_batch: int) -> list[tuple[str, str | None]]:
    found: list[tuple[str, str | None]] = []
    for batch in stream.records(rows_per_batch=rows_per_batch):
        found += zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True)
    return found


@pytest.mark.sweep
def test_the_key_is_unique(all_flights: pa.Table) -> None:
    assert all_flights.num_rows == 336_776
    assert all_flights.group_by(list(KEY)).aggregate([]).num_rows == all_flights.num_rows


@pytest.mark.sweep
def test_every_flight_has_its_changes_and_no_other(all_flights: pa.Table) -> None:
    whole = change_stream(all_flights)
    counts = whole.counts
    assert counts[FlightStep.SCHEDULED] == 336_776
    assert counts[FlightStep.DEPARTED] == 336_776 - 8_255
    assert counts[FlightStep.ARRIVED] == 336_776 - 8_713
    assert counts[FlightStep.CANCELLED] == counts[FlightStep.TOMBSTONE] == 8_255
    assert 9_000 < counts[FlightStep.CORRECTED] < 13_000
    assert len(whole) == sum(counts.values())


@pytest.mark.sweep
def test_changes_come_in_the_order_of_their_time_and_each_flights_in_the_order_of_its_steps(
    all_flights: pa.Table,
) -> None:
    whole = change_stream(all_flights)
    time_ms, index, step = (each.to_numpy() for each in (whole.time_ms, whole.flight_index, whole.step))
    assert (np.diff(time_ms) >= 0).all()
    by_flight = np.argsort(index, kind="stable")
    is_same_flight = np.diff(index[by_flight]) == 0
    assert (np.diff(step[by_flight])[is_same_flight] > 0).all()


def test_every_run_sends_the_same_records_however_they_are_cut(all_flights: pa.Table, stream: ChangeStream) -> None:
    again = change_stream(all_flights.slice(0, FLIGHTS))
    assert records(stream, 1000) == records(again, 7777)


@pytest.mark.sweep
def test_a_plain_dict_of_the_changes_holds_the_flights_that_were_not_cancelled(stream: ChangeStream) -> None:
    state: dict[str, dict[str, object]] = {}
    wrong_at_first = 0
    for key, value in records(stream, 1000):
        if value is None:
            assert key not in state
            continue
        event = json.loads(value)
        row = event["before"] if event["op"] == "d" else event["after"]
        assert json.loads(key) == {name: row[name] for name in KEY}
        assert (event["op"] == "c") == (key not in state)
        if event["op"] == "d":
            del state[key]
            continue
        wrong_at_first += event["op"] == "u" and row["arr_delay"] != state[key]["arr_delay"] is not None
        state[key] = row
    assert wrong_at_first == stream.counts[FlightStep.CORRECTED]
    columns = {name: [row[name] for row in state.values()] for name in SCHEMA.names}
    columns["time_hour"] = pa.array(columns["time_hour"], pa.string()).cast(pa.timestamp("us", tz="UTC"))
    check_equal(ordered_rows(pa.table(columns)), expected_flights(FLIGHTS), reader="dict")


def changes_of(pieces: list[tuple[str, str | None]]) -> pa.Table:
    """Rows of the demo's table with their kinds, by plain JSON."""
    events = [json.loads(value) for _, value in pieces if value is not None]
    rows = [event["before"] if event["op"] == "d" else event["after"] for event in events]
    columns = {name: [row[name] for row in rows] for name in SCHEMA.names}
    columns["time_hour"] = pa.array(columns["time_hour"], pa.string()).cast(pa.timestamp("us", tz="UTC"))
    kinds = {"c": "+I", "u": "+U", "d": "-D"}
    return pa.table(columns, schema=SCHEMA).append_column("_row_kind", [[kinds[event["op"]] for event in events]])


@pytest.mark.interop
def test_the_demos_table_is_the_same_for_every_reader_before_and_after_compaction(
    stream: ChangeStream, tmp_path: Path, assert_peers_agree: Agreement
) -> None:
    """FL-05: partitions, buckets, updates and deletes, in the shape of conf/flights.yaml."""
    job = load_job(str(ROOT / "conf" / "flights.yaml"), environment={})
    wanted = job.tables["nyc.flights"]
    wanted = wanted.model_copy(update={"options": {**wanted.options, "log.system": "none"}})
    table = ensure_table(Catalog(str(tmp_path)), "nyc.flights", wanted)
    pieces = records(stream, 5000)
    for start in range(0, len(pieces), 5000):
        table.write(changes_of(pieces[start : start + 5000]))
    for _ in range(2):
        check_equal(ordered_rows(table.read().to_arrow()), expected_flights(FLIGHTS), reader="fluvial")
        assert len(assert_peers_agree(table.store.paths.root)) == expected_flights(FLIGHTS).num_rows
        table.compact(full=True)


@pytest.mark.broker
def test_the_demos_log_folds_to_the_flights(stream: ChangeStream, tmp_path: Path, broker: Broker) -> None:
    servers = {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    job = load_job(str(ROOT / "conf" / "flights.yaml"), environment={})
    wanted = job.tables["nyc.flights"]
    catalog = Catalog(str(tmp_path), options={**job.catalog, **servers})
    table = ensure_table(catalog, "nyc.flights", wanted)
    pieces = records(stream, 5000)
    table.write(changes_of(pieces))
    folded, change_count = fold_log(table)
    check_equal(folded, expected_flights(FLIGHTS), reader="log")
    assert change_count == sum(value is not None for _, value in pieces)


def test_a_reader_that_differs_is_told_where() -> None:
    expected = expected_flights(100)
    with pytest.raises(CorruptDataError, match="rows=98 expected=99"):
        check_equal(expected.slice(0, 98), expected.slice(0, 99), reader="x")
    delays = expected["arr_delay"].to_pylist()
    delays[3] = None
    broken = expected.set_column(expected.column_names.index("arr_delay"), "arr_delay", pa.array(delays, pa.int32()))
    with pytest.raises(CorruptDataError, match=r"reader=x column=arr_delay key=.*found=None"):
        check_equal(broken, expected, reader="x")
