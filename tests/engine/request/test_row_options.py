"""Every option says what it decides, and one that decides about rows is honoured or refused."""

import ast
import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from engine.request.writer_options import WriterOptions
from engine.spark.read_options import ReadOptions
from filestore.branch.branches import create_branch
from filestore.options.log_place import TOPIC_KEY
from filestore.options.option import At, Option
from filestore.options.parsing import text
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError
from tests.support.given_options import DOORS, ROWS, SCHEMA, Door
from tests.support.row_options import OPTION_CLASSES, other_text, row_deciding_options

ROOT = Path(__file__).resolve().parents[3]


def test_an_option_that_does_not_say_what_it_decides_cannot_be_declared() -> None:
    with pytest.raises(TypeError, match="decides"):
        Option("a.key", text, None, "A key.")  # type: ignore[call-arg]


def test_every_class_of_options_is_known_to_the_tests() -> None:
    declared = {
        node.name
        for room in ("engine", "filestore", "logstore", "lsm")
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "OptionValues" for base in node.bases)
    }
    known = {base.__name__ for each in OPTION_CLASSES for base in each.__mro__}
    assert len(declared) > 15
    assert declared - known == set()


def test_places_merging_and_starts_decide_about_rows_and_addresses_do_not() -> None:
    deciding = row_deciding_options(*OPTION_CLASSES)
    assert {
        "merge-engine", "sequence.field", "ignore-delete", "branch", "scan.snapshot-id", "scan.tag-name", "consumer-id",
        "scan.fallback-branch", "log.scan", "changelog-producer", "dynamic-partition-overwrite", "filter", "columns",
        "fields.*.aggregate-function", "startingOffsets", "record-level.expire-time", "log.on-orphan-batch",
    } <= deciding.keys()  # fmt: skip
    assert deciding.keys().isdisjoint(
        {"warehouse", "uri", "commit.lock", "log.kafka.bootstrap.servers", "file.compression", "jdbc.password"}
    )


def misplaced(door: Door) -> Mapping[str, str]:
    """Options that decide about rows and are not of this door, each with a value."""
    declared = {**row_deciding_options(WriterOptions), **row_deciding_options(TableOptions)}
    declared |= {TOPIC_KEY: TableOptions.log_topic}
    return {key: other_text(option) for key, option in declared.items() if not option.at & door.at}


def refusal_at(door: Door, catalog: Catalog, given: Mapping[str, str]) -> str | None:
    """What a door says to options; None: it takes them."""
    try:
        door.open(catalog, given)
    except InvalidInputError as error:
        return str(error)
    return None


@pytest.mark.parametrize("name", DOORS)
def test_an_option_that_decides_about_rows_is_refused_where_it_is_not_for(name: str, catalog: Catalog) -> None:
    """It would be ignored, or hold for one reader only."""
    table = catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(ROWS)
    given = misplaced(DOORS[name])
    found = {key: refusal_at(DOORS[name], catalog, {key: text}) for key, text in given.items()}
    assert len(found) > 60
    assert [key for key, says in found.items() if says is None] == []
    assert [
        (key, says) for key, says in found.items()
        if not re.search(rf"(an option of [a-z ]+, not a|unknown) .*{re.escape(key)}", says or "")
    ] == []  # fmt: skip
    assert table.latest_snapshot() == catalog.table("d.t").latest_snapshot()


@pytest.mark.parametrize("name", DOORS)
def test_a_misspelt_option_is_refused_with_the_one_that_was_meant(name: str, catalog: Catalog) -> None:
    catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"}).write(ROWS)
    misspelt = "scan.branhc" if DOORS[name].at & At.READ else "change-trackin"
    with pytest.raises(
        InvalidInputError, match=rf"unknown .*{misspelt}.* did_you_mean=\W*(scan\.branch|change-tracking)"
    ):
        DOORS[name].open(catalog, {misspelt: "true"})


def test_what_is_given_where_it_does_not_belong_is_refused_with_where_it_does(catalog: Catalog) -> None:
    catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"}).write(ROWS)
    for door, key, says in (
        (
            "read",
            "merge-engine",
            "an option of the table, not a read option: merge-engine=x fix='set it where the table",
        ),
        ("read", "consumer-id", "an option of streams, not a read option: consumer-id=x fix='give it to streams'"),
        ("stream", "scan.version", "an option of batch reads, not a stream option: scan.version=x fix="),
        ("spark.read", "log.kafka.topic", "an option of the table, not a read option: log.kafka.topic=x"),
        ("write", "scan.tag-name", "an option of reads, not a write option: scan.tag-name=x fix='leave it out; what"),
        ("sink", "scan.branch", "an option of reads, not a sink option: scan.branch=x fix='branch=x'"),
    ):
        with pytest.raises(InvalidInputError, match=re.escape(says)):
            DOORS[door].open(catalog, {key: "x"})


def test_a_reader_or_writer_is_on_the_branch_that_it_names(catalog: Catalog) -> None:
    """Also streams of Python, which took the option and read main."""
    table = catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(ROWS)
    create_branch(table.store, "dev", snapshot_id=1)
    catalog.table("d.t", branch="dev").write(pa.table({"id": [2], "v": [2]}, schema=SCHEMA))
    for key in ("branch", "scan.branch"):
        on_dev = {key: "dev"}
        assert table.read(options=on_dev).to_arrow()["id"].to_pylist() == [1, 2]
        streamed = table.stream(options=on_dev, follow=False)
        assert sorted(row for each in streamed for row in each.rows["id"].to_pylist()) == [1, 2]
        with table.live(options=on_dev) as live:
            assert live.get(2) is not None
        for door, keys in (("spark.read", BATCH_KEYS), ("spark.readStream", STREAM_KEYS)):
            read = ReadOptions.parse({"warehouse": catalog.warehouse, "table": "d.t", **on_dev}, keys)
            assert read.table.store.paths.branch == "dev", door
    before = table.latest_snapshot()
    for number, door in enumerate(("write", "append", "overwrite"), 2):
        DOORS[door].open(catalog, {"branch": "dev"})
        assert catalog.table("d.t", branch="dev").store.snapshots.latest().id == number + 1  # type: ignore[union-attr]
    with table.writer("w", options={"branch": "dev"}) as writer:
        writer.write(ROWS)
    assert catalog.table("d.t", branch="dev").store.snapshots.latest().id == 6  # type: ignore[union-attr]
    assert table.latest_snapshot() == before
