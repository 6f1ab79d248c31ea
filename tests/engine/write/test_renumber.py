"""Rows that are numbered again because another writer came first."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.write.renumber import rewrite_with_higher_numbers
from lsm.errors import OutcomeUnknownError
from tests.support.tables import key_table, messages_of, rows


def test_files_that_are_gone_are_not_published_again() -> None:
    """A paused job: its batch was taken over from the log, compacted and expired."""
    table = key_table(bucket="1")
    (message,) = messages_of(table, rows((1, 1), (2, 2)))
    moved = rewrite_with_higher_numbers(table.store, message, above=9)
    assert [(file.min_sequence_number, file.max_sequence_number) for file in moved.new_files] == [(10, 11)]
    (file,) = message.new_files
    table.store.io.delete(table.store.file_path(message.partition, message.bucket, file))
    assert rewrite_with_higher_numbers(table.store, message, above=-1) == message
    with pytest.raises(OutcomeUnknownError, match=r"deleted before its commit: .*look whether its rows are there"):
        rewrite_with_higher_numbers(table.store, message, above=9)


@pytest.mark.sweep
def test_writers_of_one_bucket_at_once_all_write_and_are_all_in_lineage(tmp_path: Path) -> None:
    """lineage.md, minor: two of eight ended with a conflict that said "write the rows again"."""
    schema = pa.schema([("id", pa.int64()), ("v", pa.int64())])
    Catalog(str(tmp_path)).create_table("db.t", schema, primary_key=["id"], options={"bucket": "1"})

    def writes(writer: int) -> None:
        table = Catalog(str(tmp_path)).table("db.t")
        for turn in range(3):
            data = pa.table({"id": [0, 10 * writer + turn], "v": [writer, turn]}, schema=schema)
            table.write(data, options={"pipeline.name": f"job{writer}"})

    writers = range(1, 9)
    with ThreadPoolExecutor(len(writers)) as pool:
        list(pool.map(writes, writers))
    catalog = Catalog(str(tmp_path))
    found = catalog.table("db.t").read().to_arrow(columns=["id"]).column("id").to_pylist()
    assert sorted(found) == sorted([0, *(10 * writer + turn for writer in writers for turn in range(3))])
    stored = catalog.system_table("paimon.sink_snapshot_lineage").to_arrow().column("job").to_pylist()
    assert sorted(stored) == sorted(f"job{writer}" for writer in writers for _ in range(3))
