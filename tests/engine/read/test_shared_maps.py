"""Spark reads maps with shared columns by Fluvial: their files hold other columns than Spark's own scan expects."""

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from tests.interop.test_interop_shared_maps import LAYOUT, as_dicts, rows_of
from tests.peers import TableDefinition
from tests.peers.pypaimon_peer import PyPaimonPeer


@pytest.mark.interop
def test_spark_reads_maps_with_shared_columns(tmp_path: Path, pypaimon_peer: PyPaimonPeer, spark: SparkSession) -> None:
    column = {"type": "MAP", "key": "STRING NOT NULL", "value": "BIGINT"}
    definition = TableDefinition(columns=[("id", "BIGINT"), ("m", column)], options={"bucket": "-1", **LAYOUT})
    pypaimon_peer.create(tmp_path, "db.t", definition)
    rows = rows_of(pa.int64(), [1, None, 2])
    pypaimon_peer.write(tmp_path, "db.t", rows)
    frame = Catalog(str(tmp_path)).table("db.t").dataframe(spark)
    assert {row["id"]: row["m"] for row in frame.collect()} == as_dicts(rows)
