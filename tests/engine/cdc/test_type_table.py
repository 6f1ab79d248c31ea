"""The tables of types in docs/cdc.md, row by row, against records that real connectors published."""

import json
import re
from pathlib import Path

import pytest

from filestore.types.data_types import DataType
from logstore.format.connect_types import columns_of_part
from tests.support.cdc_job import memory_job

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "debezium"
# Column by source type, as in tests/stores/change_scenarios.py; (sample, column).
POSTGRES = {
    "boolean": "b", "bit(1)": "b1", "smallint": "i2", "integer": "i4", "bigint": "i8", "real": "f4",
    "double precision": "f8", "numeric(p,s)": "n38", "numeric": "nfree", "money": "m", "text": "t", "varchar": "vc",
    "char(n)": "ch", "xml": "x", "citext": "c", "uuid": "uu", "json": "js", "jsonb": "jb", "inet": "ip",
    "cidr": "cidr", "macaddr": "mac", "bytea": "by", "bit(n)": "b8", "varbit": "vb", "date": "d", "timestamp(p)": "ts3",
    "timestamptz": "tstz", "time(p)": "tm", "timetz": "tz", "interval": "iv", "hstore": "h", "point": "pt",
    "arrays": "ia", "more than 38 digits": "nbig", "ranges": "ir", "enums": "en",
}  # fmt: skip
MARIADB = {
    "tinyint": "ti", "(1)": "t1", "smallint": "su", "mediumint": "mu", "int": "id", "bigint unsigned": "bu",
    "decimal(p,s)": "n", "bit(1)": "b1", "bit(n)": "b9", "char": "c", "varchar": "v", "text": "t", "enum": "en",
    "set": "st", "json": "js", "binary": "vb", "varbinary": "vb", "blob": "bl", "date": "da", "datetime(p)": "dt6",
    "timestamp": "ts", "time(p)": "tm", "year": "y",
}  # fmt: skip
WORDS = ("arrays", "more than 38 digits", "ranges", "enums")


LOSSES = "is lost|see the settings"


def documented(heading: str) -> list[tuple[list[str], list[str], str]]:
    """Source types, types of the table and the remark, of each row."""
    text = (ROOT / "docs" / "cdc-types.md").read_text(encoding="utf-8")
    table = text[text.index(f"| {heading} | table |") :].split("\n\n")[0].splitlines()[2:]
    found = []
    for line in table:
        source, target, remark = (cell.strip() for cell in line.split("|")[1:4])
        names = re.findall(r"`([^`]+)`", source) + [word for word in WORDS if word in source]
        found.append((names, re.findall(r"[A-Z_]+(?:\([^)]*\))?", target), remark))
    return found


def columns_made(tmp_path: Path, *samples: str) -> dict[str, str]:
    """The type of each column of the tables that the records of these samples become."""
    found: dict[str, str] = {}
    with memory_job(tmp_path) as job:
        records = []
        for sample in samples:
            lines = (GOLDEN / f"{sample}.jsonl").read_text(encoding="utf-8").splitlines()
            for each in map(json.loads, lines):
                value = each["value"]
                source = json.loads(value)["payload"].get("source") if value else None
                if source and source["table"] in ("types", "contrib") and json.loads(value)["payload"].get("op") == "r":
                    key = None if each["key"] is None else each["key"].encode()
                    records.append((f"shop.public.{source['table']}", key, value.encode()))
        report = job.batch(*records)
        assert {str(each.parked) for each in report.tables.values()} == {"None"}
        for name in report.tables:
            fields = job.catalog.table(f"shop.{name}").schema.fields
            found |= {each.name: _text(each.type) for each in fields}
    return found


def losses(*samples: str) -> dict[str, str]:
    """What ``plan`` says of each column that loses something, in the newest records of these samples."""
    found: dict[str, str] = {}
    for sample in samples:
        lines = (GOLDEN / f"{sample}.jsonl").read_text(encoding="utf-8").splitlines()
        values = [json.loads(each["value"]) for each in map(json.loads, lines) if each["value"]]
        rows = [value for value in values if value["payload"].get("op") in ("c", "r")]
        for value in rows:
            if value["payload"]["source"]["table"] in ("types", "contrib"):
                after = next(each for each in value["schema"]["fields"] if each["field"] == "after")
                found |= {each.name: each.note for each in columns_of_part(after) if each.note}
    return found


def _text(kind: DataType) -> str:
    text = str(kind).removesuffix(" NOT NULL")
    return text.replace("TIMESTAMP(", "TIMESTAMP_LTZ(").partition(" WITH")[0] if "LOCAL" in text else text


@pytest.mark.parametrize(
    ("heading", "samples", "columns"),
    [("PostgreSQL", ("types", "contrib"), POSTGRES), ("MariaDB, MySQL", ("mariadb-types",), MARIADB)],
)
def test_each_row_is_what_a_job_makes(
    heading: str, samples: tuple[str, ...], columns: dict[str, str], tmp_path: Path
) -> None:
    """No type of the page is without a column in the samples, none of the samples becomes another type."""
    found = columns_made(tmp_path, *samples)
    seen = set()
    for sources, targets, _ in documented(heading):
        for number, source in enumerate(sources):
            column = columns[source]
            seen.add(source)
            expected = targets if len(targets) != len(sources) else [targets[number]]
            made = found[column]
            assert any(made == each or made.split("(")[0].split("<")[0] == each.split("(")[0] for each in expected), (
                source, made, expected,
            )  # fmt: skip
    assert seen == columns.keys()


def test_what_a_type_loses_is_on_the_page_and_in_the_plan() -> None:
    """G: plan printed nothing of timetz, of which the connector drops the zone."""
    rows = documented("PostgreSQL")
    lossy = {POSTGRES[source] for sources, _, remark in rows for source in sources if re.search(LOSSES, remark)}
    assert lossy == {"b8", "vb", "iv", "tz"}
    found = losses("types", "contrib")
    left_out = {name for name, note in found.items() if "REPLICA IDENTITY FULL needed" in note}
    assert left_out == {"ba", "na", "tsa", "tza"}  # large values without a placeholder
    unknown = {name for name, note in found.items() if note.startswith("unless it is an array of text")}
    assert unknown == {"ta", "ca"}  # the connector of the samples does not say the source's types
    others = found.keys() - unknown
    assert {name for name in others if not found[name].startswith("an update that leaves")} == lossy
    assert losses("modes").keys() >= {"ts", "tm"}  # time.precision.mode=connect
