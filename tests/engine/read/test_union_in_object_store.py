"""Union reads of tables in an object store: the tail of the log lies on this machine, the files do not."""

from collections.abc import Callable, Mapping

import pyarrow as pa
import pytest

from engine import Catalog
from logstore.kafka.environment import serving
from logstore.kafka.memory.cluster import MemoryCluster
from logstore.kafka.memory.environment import MemoryEnvironment
from tests.stores.object_store import ObjectStore
from tests.support.tails import changes, write_log_only

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.string())])


@pytest.mark.parametrize(
    ("key", "options"),
    [
        (["id"], {}),
        (["id"], {"log.changelog-mode": "all", "changelog-producer": "lookup"}),
        ([], {"bucket-key": "id"}),
    ],
    ids=["upserts", "exact", "without key"],
)
def test_the_tail_of_a_log_is_merged_over_files_in_an_object_store(
    object_store: ObjectStore, new_bucket: Callable[[], str], key: list[str], options: Mapping[str, str]
) -> None:
    with serving("memory:9092", MemoryEnvironment(MemoryCluster())):
        catalog = Catalog(
            f"s3://{new_bucket()}/lake", options={**object_store.options, "log.kafka.bootstrap.servers": "memory:9092"}
        )
        table = catalog.create_table("d.t", SCHEMA, primary_key=key, options={"bucket": "2", **options})
        table.write(changes([("+I", 1, "a"), ("+I", 2, "b")]))
        write_log_only(table, changes([("+I", 2, "c"), ("+I", 3, "d")]))
        rows = table.read(options={"scan.log.union": "true"}).to_arrow()
    found = sorted(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert found == [(1, "a"), *([] if key else [(2, "b")]), (2, "c"), (3, "d")]
