"""A real HDFS: a name node and a data node in one Java virtual machine, as Hadoop's own tests start them."""

import importlib.util
from pathlib import Path
from typing import Final

from engine.broker.jars import fetch_jars, read_lock
from tests.peers.java_peer import JavaPeer, paimon_jars
from tests.peers.jvm import Jvm
from tests.stores.processes import free_port

LOCK_FILE: Final = Path(__file__).parents[2] / "conf" / "hdfs-jars.lock"
_SPARK_JARS: Final = ("hadoop-client-api-*", "hadoop-client-runtime-*", "slf4j-api-*", "jcl-over-slf4j-*")
_TO_WEB_SERVER: Final = (
    ("org.apache.hadoop.hdfs.server.namenode.NameNode", "httpServer"),
    ("org.apache.hadoop.hdfs.server.namenode.NameNodeHttpServer", "httpServer"),
    ("org.apache.hadoop.http.HttpServer2", "webServer"),
)


class MiniHdfs:
    """The cluster; its files go with the directory."""

    def __init__(self, directory: Path) -> None:
        """Start it: about six seconds of processor time."""
        directory.mkdir(parents=True, exist_ok=True)
        spark = importlib.util.find_spec("pyspark")
        assert spark is not None
        assert spark.origin is not None
        spark_jars = Path(spark.origin).parent / "jars"
        hadoop = [path for name in _SPARK_JARS for path in spark_jars.glob(f"{name}.jar")]
        jars = [*fetch_jars(read_lock(LOCK_FILE).coordinates, LOCK_FILE), *hadoop, *paimon_jars()]
        options = [f"-Dtest.build.data={directory}", f"-Djava.io.tmpdir={directory}"]
        self.jvm = Jvm(jars, gateway_jar=next(spark_jars.glob("py4j-*.jar")), options=options)
        self.port, self.http_port = free_port(), free_port()
        with self.jvm.errors():
            conf = self.jvm.root.org.apache.hadoop.conf.Configuration()
            for key, value in {
                "dfs.namenode.datanode.registration.ip-hostname-check": "false",
                "dfs.namenode.fs-limits.min-block-size": "1024",
                "dfs.permissions.enabled": "false",
                "dfs.heartbeat.interval": "1",  # so it is found again soon after a restart
                "ipc.client.connect.retry.interval": "100",
                "ipc.client.connect.max.retries": "3",
                "hdfs.minidfs.basedir": str(directory),
            }.items():
                conf.set(key, value)
            builder = self.jvm.root.org.apache.hadoop.hdfs.MiniDFSCluster.Builder(conf)
            builder = builder.nameNodePort(self.port).nameNodeHttpPort(self.http_port).numDataNodes(1)
            self._cluster = builder.build()

    @property
    def webhdfs(self) -> str:
        """Where the name node answers to HTTP."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def root(self) -> str:
        """The address of the file system."""
        return f"hdfs://127.0.0.1:{self.port}"

    @property
    def options(self) -> dict[str, str]:
        """Of a catalog, to reach it."""
        return {"hdfs.webhdfs-address": self.webhdfs, "hdfs.user": "someone"}

    def java(self) -> JavaPeer:
        """Java Paimon, with Hadoop's own client."""
        return JavaPeer(self.jvm)

    def stop_name_node(self) -> None:
        """End the name node; the data node looks for it until it is back.

        A request that its RPC server has dropped keeps its web server, which would wait for a minute: as this is not a
        process of its own, it cannot end as one does.
        """
        with self.jvm.errors():
            holder = self._cluster.getNameNode()
            for kind, name in _TO_WEB_SERVER:
                field = self.jvm.root.java.lang.Class.forName(kind).getDeclaredField(name)
                field.setAccessible(True)
                holder = field.get(holder)
            holder.setStopTimeout(500)
            self._cluster.shutdownNameNode(0)

    def start_name_node(self) -> None:
        """Start it again, with what it wrote to its journal."""
        with self.jvm.errors():
            self._cluster.restartNameNode(True)

    def close(self) -> None:
        """End the machine."""
        self.jvm.kill()
