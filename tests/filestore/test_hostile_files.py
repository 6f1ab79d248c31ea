"""A stranger's table: whatever its files name, nothing outside of its directory is opened, changed or deleted."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from itertools import cycle, islice, repeat
from pathlib import Path

import pytest

from filestore.format.avro_blocks import BlockWriter, encode_long, read_blocks
from lsm.errors import FluvialError
from tests.fuzz.__main__ import fuzzed
from tests.support.faults import MemoryFileIO
from tests.support.hostile import HOSTILE, edits, odd_bodies
from tests.support.hostile_table import (
    OPERATIONS,
    ORDERS,
    SCHEMA,
    metadata,
    one_of_a_kind,
    some,
    survives,
    whole,
)
from tests.support.tables import key_table, reopened


@pytest.mark.sweep
def test_the_table_has_a_file_of_every_kind() -> None:
    """And all operations work on it unedited: else the sweep below would show nothing."""
    table = whole()
    kinds = {Path(path).parent.name for path in metadata(table)}
    assert kinds >= {"manifest", "snapshot", "schema", "tag", "savepoint", "branch-dev"}
    names = {Path(path).name.partition("-")[0] for path in metadata(table)}
    assert {"index", "manifest", "ORIGIN", "savepoint", "tag", "stat", "LATEST"} <= names
    done = set()
    for order in ORDERS:
        copy = reopened(table, MemoryFileIO(table.store.io.files))  # type: ignore[attr-defined]
        for name in order:
            with suppress(FluvialError):
                OPERATIONS[name](copy)
                done.add(name)
    assert done >= OPERATIONS.keys() - {"merge"}
    for order in ORDERS:
        body = table.store.io.read_bytes(table.store.paths.latest_hint)
        assert survives(table, body, table.store.paths.latest_hint, order) == []


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("value", HOSTILE)
def test_no_name_leads_out_of_the_table(value: str) -> None:
    """Each text of one file of every kind, in a snapshot and a branch that are read and cleaned."""
    assert led_out(value, repeat(ORDERS[2])) == {}


@pytest.mark.long
@pytest.mark.sweep
def test_no_name_leads_an_operation_out_of_the_table() -> None:
    """Every operation, forwards and backwards in turn, from one text to the next.

    ``python -m tests.fuzz`` has each operation on each edited table as it was.
    """
    assert led_out(HOSTILE[0], cycle(ORDERS[:2])) == {}


@pytest.mark.long
@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(8))
def test_no_value_of_a_file_leads_to_a_raw_error(seed: int) -> None:
    """A few of each kind of file, with some operations in an order of the seed: nothing else than our errors."""
    rng, table = random.Random(seed), whole()
    for path in one_of_a_kind(table):
        for _, body in islice(odd_bodies(table.store.io.read_bytes(path), rng), 3):
            assert survives(table, body, path, rng.sample(list(OPERATIONS), 3)) == []


@pytest.mark.sweep
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
def test_no_bytes_of_a_data_file_lead_to_a_raw_error(file_format: str) -> None:
    """Of rows, changelogs, deletion vectors and indexes: cut, with other bits, and with sizes and counts of 2^60."""
    options = {"file.format": file_format, "file.compression": "none", "deletion-vectors.enabled": "true",
               "changelog-producer": "lookup", "file-index.bloom-filter.columns": "v"}  # fmt: skip
    table = key_table(schema=SCHEMA, bucket="1", **options)
    for start in (0, 2):
        table.write(some(start, 5))
        table.compact()
    files: dict[str, bytes] = table.store.io.files  # type: ignore[attr-defined]
    rng = random.Random(41)
    for path in (path for path in files if "/bucket-" in path or "/index/" in path):
        for _, body in islice(odd_bodies(files[path], rng), 25):
            there = reopened(table, MemoryFileIO({**files, path: body}))
            for read in (
                lambda each: each.read().to_arrow(),
                lambda each: each.read(snapshot_id=1).to_arrow(),
                lambda each: each.compact(full=True),
            ):
                with suppress(FluvialError):
                    read(there)


WEIGHTLESS = [{"type": "record", "name": "e", "fields": []}, {"type": "fixed", "name": "f", "size": 0}, "null"]


@pytest.mark.parametrize("kind", WEIGHTLESS)
@pytest.mark.parametrize("is_item", [True, False])
def test_a_block_of_few_bytes_is_not_any_number_of_rows(kind: object, is_item: bool) -> None:
    """A billion rows, or items of a row, that take no byte."""
    kind = {"type": "array", "items": kind} if is_item else kind
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": kind}]}
    many = encode_long(10**9)
    out = BytesIO()
    writer = BlockWriter(out, schema, compression="null", zstd_level=1)
    writer.write_encoded(1 if is_item else 10**9, many + b"\x00" if is_item else b"")
    with pytest.raises(ValueError, match="take no byte"):
        list(read_blocks(BytesIO(out.getvalue()), lambda each: each)[1])


def test_a_block_has_no_more_rows_than_bytes() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "int"}]}
    out = BytesIO()
    BlockWriter(out, schema, compression="null", zstd_level=1).write_encoded(10**9, b"\x02")
    with pytest.raises(ValueError, match="less bytes than rows"):
        list(read_blocks(BytesIO(out.getvalue()), lambda each: each)[1])


def led_out(value: str, orders: Iterator[list[str]]) -> dict[str, list[str]]:
    """What did not survive the value, by file and place; each edit with the next order of operations."""
    table, found = whole(), {}
    for path in one_of_a_kind(table):
        for what, body in edits(table.store.io.read_bytes(path), [value]):
            if complaints := survives(table, body, path, next(orders)):
                found[f"{path.removeprefix(table.store.paths.root)} {what}"] = complaints
    return found


@pytest.mark.long
@pytest.mark.sweep
def test_the_fuzzer_counts_what_each_reader_did() -> None:
    """Of a few edits: all that was asked for was done, and some of it refused."""
    counts = fuzzed(kinds=2, values=HOSTILE[:1])
    assert counts["edits"] > 4
    assert counts["outside"] == 0
    assert counts["operations"]["read"]["refused"] > 0
    assert {sum(each.values()) for each in counts["operations"].values()} == {counts["edits"]}
    assert json.loads(json.dumps(counts)) == counts
