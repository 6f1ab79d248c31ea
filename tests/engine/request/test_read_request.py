"""What a batch read's options mean: texts in, one value out."""

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from engine.request.commit_handle import CommitHandle
from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from engine.request.read_request import (
    AtOffsets,
    AtTime,
    AtVersion,
    AtWord,
    Between,
    Newest,
    ReadRequest,
    open_for_read,
)
from engine.types.row_changes import MetadataColumn
from filestore.options.table_options import TableOptions
from filestore.refs.versions import Version
from lsm.errors import InvalidInputError


def parsed(given: Mapping[str, str], stored: Mapping[str, str] | None = None) -> ReadRequest:
    return ReadRequest.parse(TableOptions.parse(stored or {}, strict=False), given)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, ReadRequest()),
        ({"scan.snapshot-id": " 3 "}, ReadRequest(place=AtVersion(Version(snapshot_id=3)))),
        ({"scan.tag-name": "eod"}, ReadRequest(place=AtVersion(Version(tag="eod")))),
        ({"scan.savepoint-id": "2"}, ReadRequest(place=AtVersion(Version(savepoint_id=2)))),
        ({"scan.watermark": "-5"}, ReadRequest(place=AtVersion(Version(watermark=-5)))),
        ({"scan.version": "dev.eod"}, ReadRequest(place=AtWord("dev.eod"))),
        ({"scan.timestamp": "1970-01-01T01:00:00.5+01:00"}, ReadRequest(place=AtTime(500))),
        ({"scan.timestamp": "1500"}, ReadRequest(place=AtTime(1500))),
        ({"log.scan.timestamp-mills": "0"}, ReadRequest(place=AtTime(0))),
        ({"scan.mode": "from-timestamp", "scan.timestamp": "1970-01-02"}, ReadRequest(place=AtTime(86_400_000))),
        ({"scan.mode": "from-snapshot", "scan.snapshot-id": "1"}, ReadRequest(place=AtVersion(Version(snapshot_id=1)))),
        ({"scan.mode": "latest-full"}, ReadRequest()),
        ({"incremental-between": "1, eod"}, ReadRequest(place=Between("1", "eod"))),
        ({"incremental-between-timestamp": "5,9"}, ReadRequest(place=Between("timestamp.5", "timestamp.9"))),
        ({"incremental-to-auto-tag": "2024-01-02"}, ReadRequest(place=Between("", "2024-01-02"))),
        (
            {"scan.log.union": " TRUE", "scan.log.offsets": '{"0": 12, "1": 30}'},
            ReadRequest(place=AtOffsets({0: 12, 1: 30}), reads_log=True),
        ),
        ({"scan.log.union": "true", "scan.timestamp": "7"}, ReadRequest(place=AtTime(7), reads_log=True)),
        ({"scan.max-staleness": "5 min"}, ReadRequest(max_staleness_ms=300_000)),
        ({"log.on-offset-lost": "resnapshot"}, ReadRequest(fails_on_lost_log=False)),
        (
            {"scan.at-least": "7:0=12", "scan.at-least.timeout": "1500 ms"},
            ReadRequest(at_least=CommitHandle(snapshot_id=7, log_offsets={0: 12}), at_least_timeout_s=1.5),
        ),
        ({"scan.fallback-branch": "dev"}, ReadRequest(read_branches={"scan.fallback-branch": "dev"})),
        (
            {"read.changelog": "true", "read.metadata-columns": "_snapshot_id"},
            ReadRequest(has_row_kinds=True, metadata_columns=(MetadataColumn.SNAPSHOT_ID,)),
        ),
    ],
    ids=str,
)
def test_texts_become_one_value(given: Mapping[str, str], wanted: ReadRequest) -> None:
    assert parsed(given) == wanted


@pytest.mark.parametrize(
    ("stored", "given", "wanted"),
    [
        ({"scan.mode": "latest", "log.scan.timestamp-mills": "1"}, {}, ReadRequest()),
        (
            {"scan.tag-name": "eod"},
            {},
            ReadRequest(place=AtVersion(Version(tag="eod")), place_of_table="scan.tag-name"),
        ),
        ({"scan.tag-name": "eod"}, {"scan.timestamp": "1"}, ReadRequest(place=AtTime(1))),
        (
            {"log.scan.timestamp-mills": "5"},
            {},
            ReadRequest(place=AtTime(5), place_of_table="log.scan.timestamp-mills"),
        ),
        (
            {"scan.timestamp-millis": "5", "scan.mode": "from-timestamp"},
            {},
            ReadRequest(place=AtTime(5), place_of_table="log.scan.timestamp-mills"),
        ),
        ({"log.scan.timestamp-mills": "5", "log.scan": "from-timestamp"}, {}, ReadRequest()),
        ({"log.scan.timestamp-mills": "5"}, {"scan.mode": "latest"}, ReadRequest()),
        (
            {"scan.tag-name": "eod"},
            {"scan.mode": "default"},
            ReadRequest(place=AtVersion(Version(tag="eod")), place_of_table="scan.tag-name"),
        ),
        ({"scan.tag-name": "eod"}, {"incremental-between": "1,2"}, ReadRequest(place=Between("1", "2"))),
        (
            {"scan.snapshot-id": "1", "scan.timestamp": "9"},
            {"scan.mode": "from-snapshot"},
            ReadRequest(place=AtVersion(Version(snapshot_id=1)), place_of_table="scan.snapshot-id"),
        ),
        ({"incremental-between": "1,2"}, {"scan.tag-name": "t"}, ReadRequest(place=AtVersion(Version(tag="t")))),
        ({"scan.mode": "compacted-full"}, {"scan.mode": "latest-full"}, ReadRequest()),
        (
            {"scan.log.union": "true"},
            {"scan.snapshot-id": "1"},
            ReadRequest(place=AtVersion(Version(snapshot_id=1)), reads_log=False),
        ),
        ({"scan.max-staleness": "1 s"}, {"scan.timestamp": "1"}, ReadRequest(place=AtTime(1))),
        ({"scan.max-staleness": "1 s"}, {"scan.max-staleness": "2 s"}, ReadRequest(max_staleness_ms=2000)),
    ],
    ids=str,
)
def test_what_the_reader_gives_comes_before_what_the_table_has(
    stored: Mapping[str, str], given: Mapping[str, str], wanted: ReadRequest
) -> None:
    assert parsed(given, stored) == wanted


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"scan.snapshto-id": "1"}, "unknown read option: scan.snapshto-id did_you_mean=scan.snapshot-id"),
        ({"scan.log.union": "yes"}, "option=scan.log.union value='yes' expected='true or false'"),
        ({"scan.max-staleness": "soon"}, "option=scan.max-staleness value='soon' expected='a duration"),
        ({"scan.snapshot-id": "x"}, "option=scan.snapshot-id value='x' expected='a whole number, 1 or more'"),
        ({"scan.timestamp": "yesterday"}, "not a time: scan.timestamp=yesterday"),
        ({"scan.at-least": "x"}, "not the handle of a commit: scan.at-least=x"),
        ({"scan.mode": "compacted-full"}, "batch reads have no such mode: scan.mode=compacted-full known=default"),
        ({"scan.mode": "from-snapshot"}, "a place is missing: scan.mode=from-snapshot fix=set scan.snapshot-id"),
        ({"scan.mode": "latest", "scan.tag-name": "t"}, "no meaning in this mode: scan.mode=latest scan.tag-name=t"),
        ({"scan.tag-name": "t", "scan.version": "1"}, "only one place of the table's history"),
        ({"scan.timestamp": "1", "log.scan.timestamp-mills": "1"}, "only one place of the table's history"),
        ({"scan.log.offsets": '{"0": 1}'}, "an end of the log without the log"),
        ({"scan.log.offsets": "[1]", "scan.log.union": "true"}, "not offsets by bucket"),
        ({"scan.log.offsets": '{"0": -1}', "scan.log.union": "true"}, "not offsets by bucket"),
        ({"scan.snapshot-id": "1", "scan.log.union": "true"}, "a snapshot is read as it is, without the log"),
        ({"scan.snapshot-id": "1", "scan.max-staleness": "1 s"}, "an older state cannot be fresh"),
        ({"incremental-between": "1"}, "not two states: incremental-between=1"),
        ({"incremental-between": "1,2", "incremental-to-auto-tag": "t"}, "only one difference can be read"),
        ({"incremental-between": "1,2", "incremental-between-scan-mode": "delta"}, "always the net one"),
        ({"incremental-between": "1,2", "scan.tag-name": "t"}, "a difference is no state"),
        (
            {"read.metadata-columns": "_snapshot"},
            "unknown column of read.metadata-columns: _snapshot did_you",
        ),
        ({"read.metadata-columns": "_log_offset"}, "a batch read does not know this column"),
    ],
    ids=str,
)
def test_what_cannot_be_understood_is_refused_with_its_name(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        parsed(given)


def test_options_name_the_branch_and_are_in_force_there(tmp_path: Path) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", pa.schema([("a", pa.int64())])).files
    same, newest = open_for_read(table, {})
    assert same is table
    assert newest.place == Newest()
    read, request = open_for_read(table, {"scan.branch": "main", "scan.timestamp-millis": "5"})
    assert (read.store.paths.branch, request.place) == ("main", AtTime(5))
    with pytest.raises(InvalidInputError, match="no such branch"):
        open_for_read(table, {"branch": "dev"})


def test_every_option_of_a_reader_is_declared() -> None:
    assert {*BATCH_KEYS, *STREAM_KEYS} <= TableOptions.declared.keys()
