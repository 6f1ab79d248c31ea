"""The peers themselves, proved on tables whose rows are known: what they say can then be believed of ours."""

import datetime
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from py4j import java_gateway, protocol

from tests.peers import PeerError, PeerRefusedError
from tests.peers.java_peer import JavaPeer
from tests.peers.java_rows import KIND_COLUMN
from tests.peers.pypaimon_peer import PyPaimonPeer

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).parents[1] / "golden"
KINDS = ("+I", "-U", "+U", "-D")
EPOCH = datetime.date(1970, 1, 1)

# where pypaimon is known to see other rows than Paimon itself (paimon-format 10.3, 11); it must go on seeing these
PYPAIMON_DIFFERS = {
    ("java-1.4.2", "dv64"): "PeerError",  # no 64-bit deletion vectors
    ("merge", "dedup_ignore_delete"): "[]",
    ("merge", "dedup_tie_add_wins"): "[]",
    ("merge", "agg_sum_overflow"): "PeerError",
    ("pypaimon-2.1.0", "ty"): "ts9",  # it writes TIMESTAMP(9) in a way that Java misreads
}


def expected() -> dict[tuple[str, str], list[str]]:
    """Lines of rows (or one FAIL line) of every table in EXPECTED.txt, by warehouse and table."""
    tables: dict[tuple[str, str], list[str]] = {}
    warehouse, lines = "", []
    for line in (GOLDEN / "EXPECTED.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("### "):
            warehouse = line.split()[1]
        elif line.startswith("== "):
            lines = tables.setdefault((warehouse, line[3:]), [])
        elif line.startswith((*KINDS, "FAIL")):
            lines.append(line)
    return tables


EXPECTED = expected()
TABLES = [key for key in EXPECTED if (GOLDEN / key[0]).is_dir()]


def java_text(value: Any) -> str:
    """A value as EXPECTED.txt has it: Java's own texts."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case float():
            return f"{value:.1E}".replace("E+", "E").replace("E0", "E") if abs(value) >= 1e7 else str(value)
        case bytes():
            return "[" + ", ".join(str(byte - 256 if byte > 127 else byte) for byte in value) + "]"
        case datetime.datetime():
            text = value.replace(tzinfo=None).isoformat(timespec="microseconds")
            return text.removesuffix("000").removesuffix(".000").removesuffix(":00")
        case datetime.date():
            return str((value - EPOCH).days)
        case datetime.time():
            return str(((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000)
        case Decimal():
            return f"{value:f}"
        case dict():
            return f"row{len(value)}"
        case _:
            return str(value)


def as_expected(rows: pa.Table) -> Iterator[str]:
    """Lines of EXPECTED.txt for rows with their kinds."""
    nested = {field.name: "map" if pa.types.is_map(field.type) else "arr" for field in rows.schema}
    for row in rows.to_pylist(maps_as_pydicts=None):
        texts = [KINDS[row.pop(KIND_COLUMN)]]
        texts += [
            f"{nested[name]}{len(value)}" if isinstance(value, list) else java_text(value)
            for name, value in row.items()
        ]
        yield "|".join(texts)


def test_no_golden_table_is_missing() -> None:
    assert len(TABLES) == 82


@pytest.mark.parametrize(("warehouse", "table"), TABLES, ids=map("-".join, TABLES))
def test_java_reads_every_golden_table_as_recorded(java_peer: JavaPeer, warehouse: str, table: str) -> None:
    lines = EXPECTED[warehouse, table]
    if lines and lines[0].startswith("FAIL"):
        with pytest.raises(PeerError, match=lines[0].split()[1].rstrip(":")):
            java_peer.read_arrow(GOLDEN / warehouse, f"db.{table}")
        return
    rows = java_peer.read_arrow(GOLDEN / warehouse, f"db.{table}")
    if (warehouse, table) == ("pypaimon-2.1.0", "ty"):  # its ts9 is beyond every Arrow type: see PYPAIMON_DIFFERS
        position = rows.column_names.index("ts9")
        lines = ["|".join(part for at, part in enumerate(line.split("|")) if at != position) for line in lines]
        rows = rows.drop(["ts9"])
    assert sorted(as_expected(rows)) == sorted(lines)


@pytest.mark.parametrize(("warehouse", "table"), TABLES, ids=map("-".join, TABLES))
def test_pypaimon_reads_what_java_reads_or_refuses(
    java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer, warehouse: str, table: str
) -> None:
    known = PYPAIMON_DIFFERS.get((warehouse, table))
    if known == "PeerError":
        with pytest.raises(PeerError):
            pypaimon_peer.read(GOLDEN / warehouse, f"db.{table}")
        return
    try:
        rows = pypaimon_peer.read(GOLDEN / warehouse, f"db.{table}")
    except PeerRefusedError:
        return  # it says that it does not know an option or a row kind of this table
    reference = java_peer.read(GOLDEN / warehouse, f"db.{table}")
    if known is None:
        assert rows == reference
    elif known == "[]":
        assert (rows, len(reference)) == ([], 1)
    else:
        differing = {
            name for ours, theirs in zip(rows, reference, strict=True) for name in ours if ours[name] != theirs[name]
        }
        assert differing == {known}


def test_both_peers_travel_to_the_same_snapshots(java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer) -> None:
    warehouse = GOLDEN / "mini"
    counts = []
    for snapshot_id in (1, 2, 3):
        rows = java_peer.read(warehouse, "db.pk_part", snapshot_id=snapshot_id)
        assert pypaimon_peer.read(warehouse, "db.pk_part", snapshot_id=snapshot_id) == rows
        counts.append(len(rows))
    assert counts == [6, 5, 5]


def test_both_peers_filter_and_project_alike(java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer) -> None:
    for peer in (java_peer, pypaimon_peer):
        rows = peer.read(
            GOLDEN / "mini", "db.pk_part", columns=["k", "v"], where=[("k", ">=", 3), ("v", "in", ["v3", "v6", "x"])]
        )
        assert rows == [{"k": 3, "v": "v3"}, {"k": 6, "v": "v6"}]


def test_java_gives_its_own_errors_beside_a_spark_session(java_peer: JavaPeer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark has py4j convert the exceptions of every machine by its own one, which knows nothing of this one's."""

    def as_spark_does(*answer: Any) -> Any:
        try:
            return protocol.get_return_value(*answer)
        except protocol.Py4JJavaError as error:
            raise AssertionError("Spark was asked about an exception of another machine") from error

    monkeypatch.setattr(java_gateway, "get_return_value", as_spark_does)
    with pytest.raises(PeerError, match="UnsupportedOperationException"):
        java_peer.read_arrow(GOLDEN / "merge", "db.agg_first_retract")
