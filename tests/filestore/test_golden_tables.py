"""Tables that other implementations wrote, read as Paimon Java 1.4.2 reads them."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from filestore.read.split_read import read_split
from filestore.scan.data_split import DataSplit
from filestore.table import FileTable
from filestore.types.data_types import DataField
from lsm.errors import FluvialError
from lsm.keys.keys import internal_value
from lsm.row_kind import VALUE_KIND, RowKind

GOLDEN = Path(__file__).parents[1] / "golden"


def expected_tables() -> dict[str, list[str]]:
    """Lines of EXPECTED.txt by ``writer/table``; splits are left out: ours may be cut in another way."""
    tables: dict[str, list[str]] = {}
    writer = name = ""
    for line in (GOLDEN / "EXPECTED.txt").read_text().splitlines():
        if line.startswith("### "):
            writer = line.split()[1]
        elif line.startswith("== "):
            name = f"{writer}/{line[3:]}"
            tables[name] = []
        elif line.startswith(("+", "-", "FAIL")):
            tables[name].append(line)
    return {name: lines for name, lines in tables.items() if (GOLDEN / name.split("/")[0] / "db.db").is_dir()}


EXPECTED = expected_tables()
# pypaimon writes nanoseconds where Java expects INT96 and reads nonsense; this was written.
EXPECTED["pypaimon-2.1.0/ty"] = [
    line.replace("-4631424-07-15T09:25:23", "2024-02-29T12:34:56.789123") for line in EXPECTED["pypaimon-2.1.0/ty"]
]
# Java 1.4.2 lets an integer sum wrap around; that is an error here, as in Java from 2.0 on.
EXPECTED["merge/agg_sum_overflow"] = ["FAIL"]
# Java hides one retract of a key that never was, but not two of them: here each is what it takes back from nothing.
EXPECTED["merge/agg_single_ub"] = ["+I|1|-3|null|null"]


def open_golden(name: str) -> FileTable:
    writer, table = name.split("/")
    return FileTable.open(name, str(GOLDEN / writer / "db.db" / table))


def lines_of(table: FileTable, *, snapshot_id: int | None = None, tag: str | None = None) -> list[str]:
    """Rows as EXPECTED.txt shows them: ``kind|column|column``, sorted."""
    read = table.read(snapshot_id=snapshot_id, tag=tag)
    lines = []
    for split in read.plan().splits:
        for batch in read_split(read.table, split, with_system=table.store.has_key):
            # Java's raw reads do not look at the kind of a row.
            kinds = batch.column(VALUE_KIND).to_pylist() if split.needs_merge else [0] * batch.num_rows
            texts = [
                [golden_rows(value, field) for value in batch.column(field.name)] for field in read.table.schema.fields
            ]
            lines += ["|".join([RowKind(kind).symbol, *row]) for kind, *row in zip(kinds, *texts, strict=True)]
    return sorted(lines)


def golden_rows(scalar: pa.Scalar, field: DataField) -> str:
    root = field.type.root
    if not scalar.is_valid:
        return "null"
    if root in ("ARRAY", "MAP", "MULTISET", "ROW"):
        size = len(field.type.fields) if root == "ROW" else len(scalar.as_py())
        return f"{ {'ARRAY': 'arr', 'ROW': 'row'}.get(root, 'map') }{size}"
    value = internal_value(scalar)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, bytes):
        return str([byte - 256 if byte > 127 else byte for byte in value])
    if isinstance(value, float):
        return (
            f"{value:.1E}".replace("E+", "E")
            if abs(value) >= 1e7
            else str(np.float32(value) if root == "FLOAT" else value)
        )
    if isinstance(value, Decimal):
        return f"{value:f}"
    if root.startswith("TIMESTAMP"):
        per_second = 10 ** (3 if field.type.precision <= 3 else 6 if field.type.precision <= 6 else 9)
        seconds, fraction = divmod(value, per_second)
        text = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")
        nanos = f"{fraction * (10**9 // per_second):09d}"
        while nanos.endswith("000"):
            nanos = nanos[:-3]
        return f"{text}.{nanos}" if nanos else text.removesuffix(":00")
    return str(value)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_rows_are_those_that_java_reads(name: str) -> None:
    """FL-146 to FL-149, FL-182."""
    expected = EXPECTED[name]
    if expected and expected[0].startswith("FAIL"):
        with pytest.raises(FluvialError):
            lines_of(open_golden(name))
    else:
        assert lines_of(open_golden(name)) == sorted(expected)


@pytest.mark.parametrize("name", sorted(name for name in EXPECTED if "FAIL" not in "".join(EXPECTED[name])))
def test_a_column_alone_is_the_column_of_the_whole_row(name: str) -> None:
    """FL-139: a projection reads more than it was asked for when the merge needs it, and returns what was asked for."""
    table = open_golden(name)
    everything = table.read().to_arrow()
    for column in reversed(table.schema.column_names):
        alone = table.read().to_arrow(columns=[column])
        assert alone.column_names == [column]
        assert alone.column(column).to_pylist() == everything.column(column).to_pylist()


def test_all_golden_tables_are_read() -> None:
    found = {f"{path.parts[-3]}/{path.name}" for path in GOLDEN.glob("*/db.db/*")}
    assert found == set(EXPECTED)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_splits_survive_a_process_border(name: str) -> None:
    splits = open_golden(name).new_scan().plan().splits
    assert [DataSplit.from_json(split.to_json()) for split in splits] == list(splits)


def test_a_tag_is_read_with_the_schema_of_its_time() -> None:
    """TAG-25: a tag is a snapshot, whatever the schema is today."""
    table = open_golden("java-1.4.2/evol")
    assert table.schema.column_names == ("k", "a", "c")
    assert table.read(tag="t0").schema.names == ["k", "a", "b"]
    assert table.read(tag="t1").schema.names == ["k", "a", "bb", "c"]
    assert lines_of(table, tag="t0") == ["+I|1|1|x"]
    assert lines_of(table, tag="t1") == ["+I|1|1|x|null", "+I|2|2|y|7"]


def test_old_snapshots_stay_readable() -> None:
    """TAG-06."""
    table = open_golden("java-1.4.2/dedup")
    assert lines_of(table, snapshot_id=1) == ["+I|1|1|x", "+I|2|2|y"]
    assert lines_of(table, snapshot_id=2) == ["+I|3|3|null", "+U|2|22|yy"]


def key_tables() -> Iterator[str]:
    for name in sorted(EXPECTED):
        if not name.startswith("merge/"):
            yield name


@pytest.mark.parametrize("name", list(key_tables()))
def test_a_filter_on_any_column_finds_the_rows_that_are_there(name: str) -> None:
    """FL-178, FL-181: pruning by partition, bucket and statistics never loses a row."""
    table = open_golden(name)
    everything = table.read().to_arrow()
    for field in table.schema.fields:
        if field.type.root not in ("INT", "BIGINT", "VARCHAR", "DATE"):
            continue
        column = everything.column(field.name)
        for value in {*column.to_pylist()}:
            filter_text = f"{field.name} IS NULL" if value is None else f"{field.name} = {literal(value)}"
            found = table.read().to_arrow(filter=filter_text)
            assert sorted(found.to_pylist(), key=repr) == sorted(
                (row for row in everything.to_pylist() if row[field.name] == value), key=repr
            ), filter_text


def literal(value: object) -> str:
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return str(value) if isinstance(value, int) else f"DATE '{value}'"
