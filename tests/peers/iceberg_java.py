"""Apache Iceberg for Java, the reference implementation, as a reader of our metadata."""

import importlib.util
from pathlib import Path
from typing import Any, Final

from engine.broker.jars import fetch_jars
from tests.peers.jvm import Jvm

_COORDINATES: Final = ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.9.2@jar",)
_LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "bench-iceberg-jars.lock"
_SPARK_JARS: Final = (
    "hadoop-client-api-*",
    "hadoop-client-runtime-*",
    "commons-logging-*",
    "slf4j-api-*",
    "zstd-jni-*",
    "snappy-java-*",
    "lz4-java-*",
)


class IcebergJava:
    """Iceberg's own reader, out of the runtime that Spark uses, in a Java virtual machine of its own."""

    def __init__(self) -> None:
        """Start the machine."""
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        jars = Path(spark.origin).parent / "jars"
        found = [path for name in _SPARK_JARS for path in sorted(jars.glob(f"{name}.jar"))]
        runtime = fetch_jars(_COORDINATES, _LOCK_FILE)
        self._jvm = Jvm([*runtime, *found], gateway_jar=next(jars.glob("py4j-*.jar")))
        self._iceberg = self._jvm.root.org.apache.iceberg

    def close(self) -> None:
        """End the machine."""
        self._jvm.close()

    def table(self, location: str) -> Any:
        """The table whose directory ``metadata`` is in a directory, found as a Hadoop catalog finds it."""
        return self._iceberg.hadoop.HadoopTables(self._jvm.root.org.apache.hadoop.conf.Configuration()).load(location)

    def read(self, location: str, *, snapshot_id: int | None = None, ref: str | None = None) -> list[tuple[Any, ...]]:
        """The rows of a table, or of one of its versions, tags or branches, in no order."""
        table = self.table(location)
        scan = self._iceberg.data.IcebergGenerics.read(table)
        if ref is not None:
            snapshot_id = table.refs().get(ref).snapshotId()
        if snapshot_id is not None:
            scan = scan.useSnapshot(snapshot_id)
        width = table.schema().columns().size()  # its reader adds positions where there are vectors
        records = self._iceberg.relocated.com.google.common.collect.Lists.newArrayList(scan.build())
        return [tuple(record.get(index) for index in range(width)) for record in records]
