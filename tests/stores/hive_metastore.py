"""A real Hive metastore with Derby, and Java Paimon's Hive catalog as its other user, in one Java virtual machine.

The metastore is the one that Spark brings along (Hive 2.3), Paimon's catalog is in the connector of Flink.
"""

import importlib.util
from pathlib import Path
from typing import Final

from tests.peers.flink import flink_jars
from tests.peers.java_peer import JavaCatalog, JavaPeer
from tests.peers.jvm import Jvm
from tests.stores.processes import free_port, is_listening
from tests.support.waiting import wait_until

_SERVER: Final = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_SITE: Final = "<configuration>{}</configuration>"
_PROPERTY: Final = "<property><name>{}</name><value>{}</value></property>"
LOCK_TIMEOUT_S: Final = 3
"""After which the metastore takes a lock from a holder that does not answer for it."""


class RunningMetastore:
    """The metastore, and Java clients of it."""

    def __init__(self, directory: Path) -> None:
        """Start it: about five seconds of processor time, most of them for Derby's tables."""
        directory.mkdir(parents=True, exist_ok=True)
        settings = {
            "javax.jdo.option.ConnectionURL": f"jdbc:derby:;databaseName={directory}/names;create=true",
            "datanucleus.schema.autoCreateAll": "true",
            "datanucleus.connectionPoolingType": "hikaricp",
            "hive.metastore.schema.verification": "false",
            "hive.metastore.warehouse.dir": f"{directory}/hive",
            "hive.txn.timeout": f"{LOCK_TIMEOUT_S}s",
            "hive.txn.manager": "org.apache.hadoop.hive.ql.lockmgr.DbTxnManager",
            "hive.support.concurrency": "true",
            "hive.compactor.initiator.on": "true",  # with it comes what takes locks from dead holders
            "hive.timedout.txn.reaper.start": "100ms",
            "hive.timedout.txn.reaper.interval": "300ms",
        }
        text = "".join(_PROPERTY.format(*each) for each in settings.items())
        (directory / "hive-site.xml").write_text(_SITE.format(text))
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        jars = Path(spark.origin).parent / "jars"
        logs = (directory / "hive-log4j2.properties").absolute()
        logs.write_text("status = error\nrootLogger.level = error\n")
        options = [f"-Djava.io.tmpdir={directory}", f"-Dderby.stream.error.file={directory}/derby.log"]
        options += [f"-Dlog4j2.configurationFile={logs}", "-Dderby.system.durability=test"]
        options += ["-Dlog4j2.contextSelector=org.apache.logging.log4j.core.selector.ClassLoaderContextSelector"]
        self.jvm = Jvm(
            [directory, jars / "*", *flink_jars()], gateway_jar=next(jars.glob("py4j-*.jar")), options=options
        )
        self.port = free_port()
        with self.jvm.errors():
            self.jvm.root.org.apache.hadoop.hive.metastore.txn.TxnDbUtil.prepDb(
                self.jvm.root.org.apache.hadoop.hive.conf.HiveConf()
            )
            self._threads = self.jvm.root.java.util.concurrent.Executors.newSingleThreadExecutor()
            main = self.jvm.static_handle(_SERVER, "main", "void", ["[Ljava.lang.String;"])
            arguments = self.jvm.java_array("java.lang.String", ["-p", str(self.port)])
            started = self._threads.submit(self.jvm.callable(self.jvm.first_bound(main, arguments)))
        wait_until(lambda: is_listening(self.port) or started.isDone(), "the metastore listens")
        assert not started.isDone(), started.get()

    @property
    def uri(self) -> str:
        """Its address."""
        return f"thrift://127.0.0.1:{self.port}"

    def java(self, **more: str) -> JavaPeer:
        """Java Paimon with tables of the metastore."""
        return JavaPeer(self.jvm, {"metastore": "hive", "uri": self.uri, **more})

    def java_catalog(self, warehouse: Path, **more: str) -> JavaCatalog:
        """A catalog of Java Paimon's in the metastore."""
        options = {"metastore": "hive", "uri": self.uri, "warehouse": str(warehouse)}
        return JavaCatalog(self.jvm, options | {key.replace("_", "-"): value for key, value in more.items()})

    def close(self) -> None:
        """End the machine."""
        self.jvm.kill()
