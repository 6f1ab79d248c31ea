"""Memory is bounded by bytes: rows of a megabyte in many runs cost what narrow ones do (FL-144).

Peaks are those of processes of their own, with everything that they import. The rows compress to almost nothing, so
that neither the files nor the statistics say how large they are in memory.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from filestore.table import FileTable
from tests.support.tables import key_table

LAWS = settings(max_examples=25, deadline=None, derandomize=True)
BUFFER_MB = 64  # write-buffer-size, and sort-spill-buffer-size
MOST_MB = BUFFER_MB + 300
WIDE = 1_000_000
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])

CHILD = """
import sys
import pyarrow as pa
import pyarrow.compute as pc
from filestore.catalog.catalog import FileCatalog
from filestore.commit.committable import Committable
from filestore.write.table_write import TableWrite
from filestore.compact.compactor import compact_table

root, steps, keyed, runs, rows, width = sys.argv[1], sys.argv[2].split(","), sys.argv[3], *map(int, sys.argv[4:7])
options = dict(text.split("=", 1) for text in sys.argv[7:])
schema = pa.schema([("id", pa.int64()), ("v", pa.string())])
key = ["id"] if keyed == "key" else []
catalog = FileCatalog(root)
if "write" in steps:
    options = {"bucket": "1", "write-only": "true", **options}
    table = catalog.create_table("d.t", schema, primary_key=key, options=options)
else:
    table = catalog.table("d.t")


def write(run):
    writer = TableWrite(table, max_sequence_numbers=lambda *_: run * rows - 1)
    for start in range(0, rows, 10):
        ids = range(start, min(start + 10, rows))
        texts = [f"{run:04}{each:08}".ljust(width, "x") for each in ids]
        writer.write(pa.record_batch({"id": pa.array(ids, pa.int64()), "v": texts}))
    commit = table.new_commit("writer")
    commit.commit(Committable(identifier=run, messages=writer.prepare_commit()))


def facts(texts):
    return pc.binary_length(texts).to_pylist(), pc.utf8_slice_codeunits(texts, 0, 4).to_pylist()


def read():
    found = [
        row
        for batch in table.read().to_batches()
        for row in zip(batch.column(0).to_pylist(), *facts(batch.column(1)))
    ]
    newest = [(row, width, f"{runs - 1:04}") for row in range(rows)]
    assert (sorted(found) == newest if key else len(found) == runs * rows), found[:3]


for step in steps:
    if step == "write":
        for run in range(runs):
            write(run)
    elif step == "read":
        read()
    else:
        assert compact_table(table.store, full=True) is not None
# not ru_maxrss: a child begins with that of the process that started it
print(next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_mb(
    root: Path, steps: str, runs: int, rows: int, *, width: int = WIDE, keyed: str = "key", **options: str
) -> int:
    """The most memory of a process that does these steps."""
    texts = [f"{key}={value}" for key, value in options.items()]
    command = [sys.executable, "-c", CHILD, str(root), steps, keyed, *map(str, (runs, rows, width)), *texts]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.long
@pytest.mark.sweep
def test_wide_rows_are_written_read_and_compacted_in_the_memory_of_the_buffers(tmp_path: Path) -> None:
    """FL-144: 360 MB of rows in 6 runs; the small form of the soak below."""
    peak = peak_mb(tmp_path, "write,read,compact,read", 6, 60)
    assert peak <= MOST_MB


@pytest.mark.soak
@pytest.mark.parametrize("runs", [2, 6, 10])
@pytest.mark.parametrize(
    "how",
    [{}, {"keyed": "append"}, {"file.format": "avro"}, {"file.format": "orc"}],
    ids=["key", "append", "avro", "orc"],
)
def test_peaks_do_not_grow_with_the_runs(tmp_path: Path, runs: int, how: dict[str, str]) -> None:
    """FL-144: 250 keys of 1 MB in 6 runs cost 4.5 GB once."""
    peaks = {step: peak_mb(tmp_path, step, runs, 250, **how) for step in ("write", "read", "compact")}
    assert max(peaks.values()) <= MOST_MB, peaks


@pytest.mark.soak
@pytest.mark.parametrize("producer", ["lookup", "full-compaction"])
@pytest.mark.parametrize("runs", [2, 6, 10])
def test_changes_of_wide_rows_are_found_in_bounded_memory(tmp_path: Path, runs: int, producer: str) -> None:
    """Rows before and after are both in memory: a section more of each."""
    changes = {"changelog-producer": producer}
    peaks = {step: peak_mb(tmp_path, step, runs, 250, **changes) for step in ("write", "compact")}
    assert max(peaks.values()) <= MOST_MB + BUFFER_MB, peaks


@pytest.mark.soak
def test_a_row_of_200_mb_still_works(tmp_path: Path) -> None:
    """FL-144: one row of each run is in memory, and some copies of it."""
    peaks = {step: peak_mb(tmp_path, step, 3, 1, width=200_000_000) for step in ("write", "read", "compact")}
    assert max(peaks.values()) <= 3500, peaks


# ---- the same rows, whatever the budget

ENGINES: dict[str, dict[str, str]] = {
    "deduplicate": {},
    "partial-update": {"merge-engine": "partial-update"},
    "aggregation": {"merge-engine": "aggregation", "fields.v.aggregate-function": "listagg"},
    "first-row": {"merge-engine": "first-row"},
    "lookup": {"changelog-producer": "lookup"},
    "vectors": {"deletion-vectors.enabled": "true"},
}
ROW = st.tuples(st.integers(0, 30), st.one_of(st.none(), st.text("ab", max_size=80)))
RUNS = st.lists(st.lists(ROW, max_size=25), min_size=1, max_size=5)


def batch_of(pairs: list[tuple[int, str | None]]) -> pa.Table:
    return pa.table([[key for key, _ in pairs], [value for _, value in pairs]], schema=SCHEMA)


def contents(runs: list[list[tuple[int, str | None]]], **options: str) -> list[list[dict[str, Any]]]:
    """Rows before and after a full compaction, and the changes that streams get."""
    table: FileTable = key_table(schema=SCHEMA, **{"bucket": "1", "num-sorted-run.compaction-trigger": "9", **options})
    for pairs in runs:
        table.write(batch_of(pairs))
    before = table.read().to_arrow().to_pylist()
    table.compact(full=True)
    return [before, table.read().to_arrow().to_pylist()]


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("engine", ENGINES)
@LAWS
@given(RUNS, st.sampled_from(["1 b", "100 b", "1 kb", "10 kb"]), st.sampled_from(["1 b", "200 b", "64 mb"]))
def test_rows_are_the_same_whatever_the_budget(
    engine: str, runs: list[list[tuple[int, str | None]]], merge: str, write: str
) -> None:
    """FL-144."""
    usual = contents(runs, **ENGINES[engine])
    tiny = contents(runs, **ENGINES[engine], **{"sort-spill-buffer-size": merge, "write-buffer-size": write})
    assert tiny == usual
