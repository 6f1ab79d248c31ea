"""What a table without a key ignores is not in its log either: who reads that has the rows of the table."""

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment

ALL = ["+I", "-U", "+U", "-D", "-D"]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[Catalog]:
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        yield Catalog(str(tmp_path), options={"log.kafka.bootstrap.servers": "memory:9092"})


@pytest.mark.parametrize("untracked", [False, True])
@pytest.mark.parametrize(
    ("option", "kinds"), [("ignore-delete", ALL), ("ignore-delete", ["-D"] * 5), ("ignore-update-before", ["+I", "-U"])]
)
def test_streams_and_union_reads_have_the_rows_of_the_table(
    catalog: Catalog, option: str, kinds: list[str], untracked: bool
) -> None:
    schema = pa.schema([("p", pa.string()), ("id", pa.int64())])
    options = {"bucket": "2", "bucket-key": "id", option: "true"}
    if untracked:
        options["change-tracking.untracked-partitions"] = '[{"p": "b"}]'
    table = catalog.create_table("d.t", schema, partition_by=["p"], options=options)
    table.write(pa.table({"p": ["a"], "id": [9], "_row_kind": ["+I"]}))
    table.write(pa.table({"p": ["a"] * len(kinds), "id": range(len(kinds)), "_row_kind": kinds}))
    wanted = sorted(table.read().to_arrow()["id"].to_pylist())
    assert wanted == [*(each for each, kind in enumerate(kinds) if kind[0] == "+"), 9]
    assert sorted(table.read(options={"scan.log.union": "true"}).to_arrow()["id"].to_pylist()) == wanted
    for start in (None, 1):
        got = []
        with table.stream(start, follow=False) as stream:
            for changes in stream:
                assert set(changes.kinds.to_pylist()) <= {"+I", "+U"}
                got += changes.rows["id"].to_pylist()
        assert sorted(got) == wanted
