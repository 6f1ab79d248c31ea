"""A task's memory does not grow with the length of the log range that it reads: measured in processes of their own."""

import subprocess
import sys

import pyarrow as pa
import pytest

from engine import Table
from tests.engine.stream.conftest import NewTable

pytestmark = pytest.mark.broker

SHORT, LONG = 100_000, 400_000
MIB = 1024
MOST_GROWTH_KIB = 48 * MIB  # of the peak; the long range's records alone are over 100 MiB of text and columns

TASK = """
import resource, sys
from engine import Catalog
from engine.spark.data_source import FluvialDataSource
from engine.stream.rows import LogPiece
from logstore.offsets import LogRange

warehouse, name, end = sys.argv[1], sys.argv[2], int(sys.argv[3])
source = FluvialDataSource({"warehouse": warehouse, "table": name, "read.changelog": "true"})
reader = source.streamReader(source.schema())
rows, log = reader._rows, reader._options.log
count = 0
for batch in rows.read([LogPiece(log=log, log_range=LogRange(bucket=0, start_offset=0, end_offset=end))]):
    count += batch.num_rows
print(count, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def peak_kib(table: Table, warehouse: object, end: int) -> tuple[int, int]:
    """Rows read up to an offset, and the most memory that the process had."""
    command = [sys.executable, "-c", TASK, str(warehouse), table.name, str(end)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    count, peak = done.stdout.split()
    return int(count), int(peak)


@pytest.mark.long
def test_memory_does_not_grow_with_the_range(new_table: NewTable, tmp_path: object) -> None:
    """FL-26: a long backlog needs the memory of a short one."""
    table = new_table()
    step = SHORT // 2
    for first in range(0, LONG, step):
        ids = range(first, first + step)
        table.write(pa.table({"id": pa.array(ids, pa.int64()), "v": [f"{each:0100d}" for each in ids]}))
    end = table.log_end_offsets()[0]
    short_count, short_peak = peak_kib(table, tmp_path, SHORT)
    long_count, long_peak = peak_kib(table, tmp_path, end)
    assert SHORT - 10 <= short_count <= SHORT
    assert long_count == LONG
    assert long_peak - short_peak < MOST_GROWTH_KIB, f"short={short_peak} KiB long={long_peak} KiB"
