"""Statistics of ANALYZE beside Java: Paimon understands the bounds, counts and lengths that we write."""

import datetime
from decimal import Decimal
from pathlib import Path

import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.maintenance.table_statistics import analyze
from tests.peers import TableDefinition
from tests.peers.agreement import Agreement
from tests.peers.java_peer import JavaPeer
from tests.peers.tables import rows_of

pytestmark = pytest.mark.interop

DEFINITION = TableDefinition(
    columns=[
        ("k", "INT NOT NULL"),
        ("big", "BIGINT"),
        ("dbl", "DOUBLE"),
        ("txt", "STRING"),
        ("dec", "DECIMAL(9, 2)"),
        ("day", "DATE"),
        ("ts3", "TIMESTAMP(3)"),
        ("ts6", "TIMESTAMP(6)"),
        ("ltz", "TIMESTAMP(6) WITH LOCAL TIME ZONE"),
        ("flag", "BOOLEAN"),
    ],
    primary_key=["k"],
    options={"bucket": "1"},
)


def test_java_reads_our_statistics(tmp_path: Path, java_peer: JavaPeer, assert_peers_agree: Agreement) -> None:
    """Issue 20 point 7: values come out of Java's serializers as they went in; rows are read as before."""
    java_peer.create(tmp_path, "db.t", DEFINITION)
    moment = datetime.datetime.fromisoformat("2024-02-29T12:34:56.789000")
    rows = [
        {
            "k": number,
            "big": number * 2**40,
            "dbl": number / 4,
            "txt": "é" * number,
            "dec": Decimal(number) / 4,
            "day": datetime.date(1969, 12, 30 + number) if number < 2 else datetime.date(2024, 2, 29),
            "ts3": moment,
            "ts6": moment.replace(microsecond=number),
            "ltz": moment.replace(tzinfo=datetime.UTC),
            "flag": number > 0,
        }
        for number in range(3)
    ]
    java_peer.write(tmp_path, "db.t", rows_of(DEFINITION, rows))
    table = FileCatalog(str(tmp_path)).table("db.t")
    assert analyze(table, table.schema.column_names) is not None
    count, _, columns = java_peer.statistics(tmp_path, "db.t")
    assert count == 3
    assert {name: (column.get("min"), column.get("max")) for name, column in columns.items()} == {
        "k": ("0", "2"),
        "big": ("0", str(2 * 2**40)),
        "dbl": ("0.0", "0.5"),
        "txt": (None, None),
        "dec": ("0.00", "0.50"),
        "day": ("-2", "19782"),
        "ts3": ("2024-02-29T12:34:56.789", "2024-02-29T12:34:56.789"),
        "ts6": ("2024-02-29T12:34:56", "2024-02-29T12:34:56.000002"),
        "ltz": ("2024-02-29T12:34:56.789", "2024-02-29T12:34:56.789"),
        "flag": ("False", "True"),  # as Python spells what py4j gives
    }
    assert [columns["txt"][name] for name in ("distinctCount", "nullCount", "avgLen", "maxLen")] == [3, 0, 1, 2]
    java_peer.write(tmp_path, "db.t", rows_of(DEFINITION, rows[:1]))
    assert_peers_agree(tmp_path / "db.db" / "t")
