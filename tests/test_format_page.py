"""FORMAT.md is true: its field tables are those of the code and of files that other implementations wrote."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import pytest

from engine.cuts.tags import CutRecord
from engine.lineage.origins import CommitOrigin as RowOrigin
from engine.lineage.origins import SourceRead
from engine.log.bucket_log import PAYLOAD_DIRECTORY
from engine.spark.writer.staged_rows import STAGING_DIRECTORY
from engine.write.ticket_queue import TURNS_DIRECTORY
from filestore.catalog.table_names import PLACE_NOTE, PLACES_DIRECTORY
from filestore.commit.expired_commits import ExpiredCommits
from filestore.commit.query_run import RUNS_DIRECTORY
from filestore.compact.attempts import ATTEMPT_DIRECTORY
from filestore.hashing.murmur import SEED
from filestore.index.container import pack_indexes
from filestore.index.deletion_vectors import MAGIC_32, MAGIC_64
from filestore.io.commit_lock import LOCK_FILE_NAME
from filestore.layout.branch_state import BranchOrigin, Operation, Work, begin_work, write_origin
from filestore.layout.former_mains import FORMER_MAIN_FILE
from filestore.layout.log_key import LOG_KEY_DIRECTORY
from filestore.layout.paths import TablePaths
from filestore.manifest.avro_schemas import INDEX_MANIFEST_SCHEMA, MANIFEST_LIST_SCHEMA, MANIFEST_SCHEMA
from filestore.manifest.entries import FileIdentity
from filestore.options.flink_log import STORED_NAMES
from filestore.options.table_options import TableOptions
from filestore.refs.savepoint_files import CHECKPOINT_PREFIX, SavedCheckpoint, Savepoint
from filestore.schema.file_fields import KEY_FIELD_ID_START, SEQUENCE_NUMBER_ID, VALUE_KIND_ID, file_fields
from filestore.schema.row_counts import HIDDEN_NAMES, stored_form
from filestore.snapshot.snapshot import CommitKind
from filestore.types.binary_row import encode_row
from filestore.types.data_types import parse_data_type
from lsm.row_kind import ROW_KIND_SYMBOLS, RowKind
from tests.support.faults import MemoryFileIO
from tests.support.format_samples import (
    SCHEMA,
    SNAPSHOT,
    STATS,
    Recorder,
    avro_types,
    eventful_table,
    expired_and_rolled_back,
    json_type,
    pattern_of,
)
from tests.support.markdown import ROOT, page_types, quoted, sections, table, unquoted
from tests.support.tables import key_table, rows
from tests.support.vectors import GOLDEN

PAGE = (ROOT / "FORMAT.md").read_text(encoding="utf-8")
PARTS = sections(PAGE)
JAVA = GOLDEN / "java-1.4.2" / "db.db"


def typed(heading: str) -> dict[str, str]:
    return page_types(PARTS[heading])


# ---- the page itself


def test_the_page_can_be_read_in_one_sitting() -> None:
    assert len(PAGE.encode()) <= 25_000
    long = [line for line in PAGE.splitlines() if len(line) > (199 if line.startswith(("|", "{")) else 120)]
    assert long == []


# ---- JSON files


def test_the_keys_of_a_snapshot_are_those_that_the_code_writes() -> None:
    written = json.loads(SNAPSHOT.to_json())
    assert typed("Snapshot file") == {key: json_type(value) for key, value in written.items()}
    assert quoted(dict((unquoted(row[0]), row[2]) for row in table(PARTS["Snapshot file"]))["commitKind"]) == [
        kind.value for kind in CommitKind
    ]


def test_the_keys_of_a_schema_are_those_that_the_code_writes() -> None:
    written = json.loads(SCHEMA.to_json())
    assert typed("Schema file") == {key: json_type(value) for key, value in written.items()}
    (of_fields,) = (row[2] for row in table(PARTS["Schema file"]) if unquoted(row[0]) == "fields")
    assert quoted(of_fields) == list(written["fields"][0])


def golden_json(kind: str) -> Iterator[Mapping[str, Any]]:
    for path in [*GOLDEN.glob(f"*/db.db/*/{kind}/{kind}-*"), *GOLDEN.glob(f"*/db.db/*/branch/*/{kind}/{kind}-*")]:
        if path.is_file():
            yield json.loads(path.read_bytes())


@pytest.mark.parametrize(
    ("kind", "heading"), [("snapshot", "Snapshot file"), ("tag", "Snapshot file"), ("schema", "Schema file")]
)
def test_what_others_wrote_has_no_other_keys(kind: str, heading: str) -> None:
    known = typed(heading)
    if kind == "tag":
        known |= {"tagCreateTime": "array", "tagTimeRetained": ""}
        assert {"tagCreateTime", "tagTimeRetained"} <= set(quoted(PARTS["Tags, savepoints, consumers"]))
    bodies = list(golden_json(kind))
    assert bodies
    for body in bodies:
        for key, value in body.items():
            assert key in known
            if value is not None and key != "tagTimeRetained":  # a decimal number
                assert known[key] == json_type(value), key


# ---- Avro files


def file_schema(manifest: Mapping[str, Any]) -> Mapping[str, Any]:
    return manifest["fields"][-1]["type"]  # type: ignore[no-any-return]


def golden_schema(start: str) -> Mapping[str, Any]:
    """The schema that Java wrote into a file whose name starts so."""
    pattern = re.compile(rf"{start}-[0-9a-f]{{8}}-")
    path = next(path for path in sorted(JAVA.glob("*/manifest/*")) if pattern.match(path.name))
    with path.open("rb") as file:
        return fastavro.reader(file).writer_schema  # type: ignore[return-value]


AVRO = {
    "Manifest list": (MANIFEST_LIST_SCHEMA, "manifest-list"),
    "Manifest entry": (MANIFEST_SCHEMA, "manifest"),
    "Index manifest entry": (INDEX_MANIFEST_SCHEMA, "index-manifest"),
}


@pytest.mark.parametrize("heading", AVRO)
def test_the_fields_of_metadata_are_those_of_the_code_and_of_java(heading: str) -> None:
    ours, start = AVRO[heading]
    assert typed(heading) == avro_types(ours) == avro_types(golden_schema(start))


def test_the_fields_of_a_data_file_are_those_of_the_code_and_of_java_and_are_numbered() -> None:
    found = table(PARTS["Data file (`_FILE`)"])
    assert [row[0] for row in found] == [str(number) for number in range(20)]
    assert {unquoted(row[1]): row[2] for row in found} == avro_types(file_schema(MANIFEST_SCHEMA))
    assert avro_types(file_schema(MANIFEST_SCHEMA)) == avro_types(file_schema(golden_schema("manifest")))


def test_the_fields_inside_of_records_are_named() -> None:
    assert quoted(PARTS["SimpleStats"])[:3] == [*STATS.to_avro()]
    (about,) = (row[2] for row in table(PARTS["Index manifest entry"]) if "RANGES" in row[0])
    vectors = INDEX_MANIFEST_SCHEMA["fields"][8]["type"][1]["items"][1]
    assert re.findall(r"`(\w+)` [a-z ]*?(int|long\?|string)", about) == [*avro_types(vectors).items()]


# ---- where files are


def page_paths() -> dict[str, bool]:
    """Every path of the page, and whether it belongs to a branch."""
    found = {}
    for cell, of, _ in table(PARTS["Directory"]):
        names = quoted(cell)
        parent = names[0].rpartition("/")[0]
        found |= {name if "/" in name else f"{parent}/{name}".lstrip("/"): of == "B" for name in names}
    return found


def test_every_file_that_is_written_has_a_row_and_every_row_a_file() -> None:
    written: set[str] = set()
    for fill in (eventful_table, expired_and_rolled_back):
        io = Recorder(MemoryFileIO())
        written |= io.written(fill(io).store.paths.root)
    for bucket in ("-1", "-2"):
        io = Recorder(MemoryFileIO())
        made = key_table(io, bucket=bucket)  # type: ignore[arg-type]
        made.write(rows((1, 1)))
        written |= io.written(made.store.paths.root)
    uuid = "00000000-0000-4000-8000-000000000000"
    paths = TablePaths("/t")
    written |= {paths.changelog(7)[3:], paths.statistics("stat-1")[3:], paths.tag_success_file("t")[3:]}
    written |= {f"{PAYLOAD_DIRECTORY}/{uuid}", LOCK_FILE_NAME}
    written |= {f"{STAGING_DIRECTORY}/user/0/{name}" for name in (f"{uuid}.arrow", "00000000.files", "00000000.claim")}
    written |= {f"{paths.savepoint_dir}/{CHECKPOINT_PREFIX}{uuid}/"[3:]}
    written |= {f"{LOG_KEY_DIRECTORY}/{'0' * 32}{suffix}" for suffix in ("", ".place")}
    written |= {"metadata/v1.metadata.json"}
    written |= {f"{TURNS_DIRECTORY}/7", f"{TURNS_DIRECTORY}/7.beat", FORMER_MAIN_FILE}
    written |= {f"../{PLACES_DIRECTORY}/t/{PLACE_NOTE}"}
    written |= {f"{RUNS_DIRECTORY}/user", f"{ATTEMPT_DIRECTORY}/0123456789abcdef-1.1"}
    known = page_paths()
    in_branch = re.compile(r"branch/branch-[^/]+/")
    names = {name if is_branch_file(name) else in_branch.sub("", name) for name in written}
    unknown = {name for name in names if not any(pattern_of(path).fullmatch(name) for path in known)}
    unused = {path for path in known if not any(pattern_of(path).fullmatch(name) for name in names)}
    assert (unknown, unused) == (set(), set())
    shared = {in_branch.sub("", name) for name in written if in_branch.match(name) and not is_branch_file(name)}
    wrong = {
        path for path, of_branch in known.items() if not of_branch and any(map(pattern_of(path).fullmatch, shared))
    }
    assert wrong == set()


def is_branch_file(name: str) -> bool:
    return re.fullmatch(r"branch/branch-[^/]+/[A-Z-]+", name) is not None


def test_what_belongs_to_a_branch_is_in_its_directory() -> None:
    main, branch = TablePaths("/t"), TablePaths("/t", "b")
    for name, of_branch in page_paths().items():
        directory = name.split("/")[0]
        attribute = f"{directory}_dir"
        if hasattr(main, attribute) and directory != "branch":
            assert (getattr(main, attribute) != getattr(branch, attribute)) == of_branch, name


def test_a_null_partition_has_the_name_of_the_page() -> None:
    assert TableOptions.parse({}).partition_default_name in quoted(PARTS["Partition paths"])


# ---- properties of snapshots


def test_the_properties_of_snapshots_are_those_that_the_code_has_names_for() -> None:
    named = re.compile(r'^[A-Z_]*(?:KEY|PROPERTY): Final = "(fluvial\.[a-z-]+)"', re.MULTILINE)
    found: set[str] = set()
    for package in ("engine", "filestore"):
        for path in (ROOT / package).rglob("*.py"):
            found |= set(named.findall(path.read_text(encoding="utf-8")))
    assert {unquoted(row[0]) for row in table(PARTS["Properties"])} == found
    assert len(found) == 21


def test_the_lineage_of_a_commit_has_the_keys_of_the_page() -> None:
    reads = (SourceRead(warehouse="w", table="t", snapshot_id=1, table_id="i"),)
    ((key, text),) = RowOrigin(job="j", barrier_id=1, reads=reads, run="r").to_properties().items()
    (cell,) = (row[1] for row in table(PARTS["Properties"]) if unquoted(row[0]) == key)
    body = json.loads(text)
    assert re.findall(r'"(\w+)"', cell) == ["job", "barrier", "reads", *body["reads"][0], "run"]
    assert list(body) == ["job", "barrier", "reads", "run"]


# ---- data files and indexes


def test_data_files_have_the_columns_of_the_page() -> None:
    cells = [row[1] for row in table(PARTS["Data files"])]
    names = [field.name for field in file_fields(SCHEMA, key_values=True)]
    assert [word.replace("<name>", "a") for word in quoted(cells[1])] == names[:3]
    assert [field.name for field in file_fields(SCHEMA, key_values=True, thin=True)] == names[1:]
    assert cells[2] == "the same without `_KEY_<name>`"
    text = PARTS["Data files"]
    for number in (KEY_FIELD_ID_START, SEQUENCE_NUMBER_ID, VALUE_KIND_ID):
        assert str(number) in text
    assert ", ".join(f"{kind.value} {symbol}" for kind, symbol in zip(RowKind, ROW_KIND_SYMBOLS, strict=True)) in text


def test_tables_that_count_their_rows_are_stored_as_the_page_says() -> None:
    words = set(quoted(PARTS["Tables that count their rows"]))
    form = stored_form(
        SCHEMA.fields, primary_keys=(), partitions=(), options=TableOptions.parse({"row-counts": "true"})
    )
    stored = {f"{key}={value}" for key, value in form.options.items() if "aggregat" in key + value}
    assert {*HIDDEN_NAMES, *stored} <= words
    assert [field.name for field in form.columns] == ["a", *HIDDEN_NAMES]


def test_live_files_are_told_apart_by_the_fields_of_the_page() -> None:
    names = [f"_{name.upper()}" for name in FileIdentity._fields]
    renamed = {"_EMBEDDED_INDEX": "_EMBEDDED_FILE_INDEX"}
    assert quoted(PARTS["Snapshot file"])[-7:] == [renamed.get(name, name) for name in names]


_NO_OPTIONS = ("bloom-filter", "debezium-avro", "debezium-json", "fast-forward", "replace-main", *STORED_NAMES.values())


def test_options_of_the_page_exist() -> None:
    found = re.findall(r"`([a-z][a-z0-9]*(?:[.-][a-z0-9-]+)+)(?:=[\w-]+)?`", PAGE)
    known = (*TableOptions.declared, *typed_properties(), *_NO_OPTIONS)
    assert [name for name in found if name not in known] == []
    assert len(found) > 15


def typed_properties() -> list[str]:
    return [unquoted(row[0]) for row in table(PARTS["Properties"])]


def test_the_numbers_of_indexes_are_those_of_the_code() -> None:
    text = PARTS["Indexes"]
    assert MAGIC_32.hex() in text
    assert MAGIC_64.hex() in text
    container = pack_indexes({"a": {"bloom-filter": b"x"}})
    assert f"magic {int.from_bytes(container[:8], 'big')}," in text
    assert f"seed {SEED}" in PARTS["BinaryRow"]


ROOM = {
    "BOOLEAN, TINYINT / SMALLINT / INT, DATE, TIME / BIGINT": [
        ("BOOLEAN", True, 1), ("TINYINT", -1, 1), ("SMALLINT", -1, 2), ("INT", -1, 4), ("DATE", -1, 4),
        ("BIGINT", -1, 8),
    ],
    "FLOAT / DOUBLE": [("FLOAT", -1.7, 4), ("DOUBLE", -1.7, 8)],
}  # fmt: skip


def test_slots_and_variable_parts_are_as_large_as_the_page_says() -> None:
    by_type = {row[0]: row[1:] for row in table(PARTS["BinaryRow"])}
    for cell, cases in ROOM.items():
        widths = [int(number) for number in re.findall(r"\d+", by_type[cell][0])]
        for name, value, width in cases:
            row = encode_row((value,), (parse_data_type(name),))
            assert width in widths
            assert len(row) == 4 + 8 + 8
            assert row[12 + width :] == bytes(8 - width)
            assert value not in (-1,) or row[12 : 12 + width] == b"\xff" * width
    assert by_type["text and bytes up to 7 bytes"] == ("bytes, zeros, last byte `0x80 + length`", "")
    assert by_type["longer text and bytes"] == ("`offset << 32 + length`", "bytes, padded to 8")
    short, long = (encode_row((text,), (parse_data_type("STRING"),)) for text in ("1234567", "12345678"))
    assert (len(short), short[19]) == (20, 0x80 + 7)
    assert (len(long), long[12:20]) == (28, bytes([8, 0, 0, 0, 16, 0, 0, 0]))
    for cell, name, size in (
        ("DECIMAL up to 18 digits", "DECIMAL(18, 0)", 0),
        ("DECIMAL above", "DECIMAL(19, 0)", 16),
        ("TIMESTAMP(0-3), also LTZ", "TIMESTAMP(3)", 0),
        ("TIMESTAMP(4-9), also LTZ", "TIMESTAMP(4)", 8),
    ):
        assert cell in by_type
        assert bool(by_type[cell][1]) == bool(size)
        assert by_type[cell][0].startswith("`offset << 32 + ") == bool(size)
        for value in (None, 1):
            kept = value is not None or size
            assert len(encode_row((value,), (parse_data_type(name),))) == 20 + (size if kept else 0)


# ---- tags, savepoints, branches


def test_small_files_have_the_keys_of_the_page() -> None:
    text = PARTS["Tags, savepoints, consumers"]
    checkpoint = SavedCheckpoint(
        query_id="q", commit_user="u", batch_id=1, location="l", directory="d", files=(), sources=()
    )
    savepoint = Savepoint.of(SNAPSHOT, savepoint_id=1, record_count=1, save_time_ms=1, checkpoints=(checkpoint,))
    body = json.loads(savepoint.to_json())
    item = text[text.index("**Savepoint**") :]
    assert quoted(item)[: len(body) + len(body["checkpoints"][0])] == [*body, *body["checkpoints"][0]]
    cut = CutRecord(id="c", tables={"t": 1}, batches={"u": 1}).to_json()
    (example,) = (word for word in quoted(text) if '"batches"' in word)
    assert re.findall(r'"(\w+)"', example) == list(cut)
    io = MemoryFileIO()
    paths = TablePaths("/t", "b")
    write_origin(io, paths, BranchOrigin(schema_id=0, first_schema_id=0, created_ms=1))
    begin_work(io, paths, Work(operation=Operation.MERGE))
    origin, work = (json.loads(io.files[f"{paths.branch_root}/{name}"]) for name in ("ORIGIN", "OPERATION"))
    words = quoted(PARTS["Branches"])
    assert words[1 : 1 + len(origin)] == list(origin)
    assert re.findall(r'"(\w+)"', next(word for word in words if word.startswith("{"))) == list(work)
    assert {operation.value for operation in Operation} <= set(words)


def test_notes_of_expired_commits_have_the_keys_of_the_page() -> None:
    store = key_table().store
    (path,) = ExpiredCommits(store).note([SNAPSHOT], following=None)
    (cell,) = (row[2] for row in table(PARTS["Directory"]) if "expired-commits" in row[0])
    io = store.io
    assert re.findall(r'"(\w+)"', cell) == list(json.loads(io.files[path]))
