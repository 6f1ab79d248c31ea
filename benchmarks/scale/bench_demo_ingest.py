"""What ``make demo`` ingests: Debezium changes of 19 columns in JSON, from Kafka into a log and files of 48 buckets.

The job of ``conf/flights.yaml`` as it is, behind Spark's start. Measured are its batches behind the first two, so all
is warm; ``cpu_us_per_change`` says where their time is: this process (decoding and writing where it does both), Python
workers, the JVM and the broker. The peer consumes and decodes the same records and does nothing else, in one thread.
Budget: 100,000 changes a second on 2 cores.

usage: python -m benchmarks demo_ingest [--quick | --tiny]
"""

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import orjson
import psutil
from confluent_kafka import KafkaError, TopicPartition

from benchmarks.demo.flights import change_stream, read_flights
from benchmarks.demo.publish import publish_flights
from benchmarks.demo.run import CONFIG, PARTITION_COUNT, TOPIC
from benchmarks.harness import REPOSITORY, commit, machine, sized
from engine import session
from engine.broker.broker import Broker
from engine.deploy.config.job_config import load_job
from engine.deploy.job import run_job
from engine.deploy.pipeline.pipeline import PipelineProgress
from logstore.kafka.clients import ErrorNotes, KafkaProperties
from logstore.kafka.topics import LogTopics

BUDGET = 100_000
COLD_BATCHES = 2
PEER = "consume() and orjson per record"


@dataclass(frozen=True, slots=True)
class Moment:
    """The end of a batch."""

    seconds: float
    changes: int  # until now
    cpu_seconds: dict[str, float]


def place_of(command: list[str]) -> str:
    """Which part of the work a process below this one does."""
    if any("kafka.Kafka" in word for word in command):
        return "broker"
    return "jvm" if command and command[0].endswith("java") else "workers"


class Spent:
    """Processor time of this process and of all below it, also of those that have ended."""

    def __init__(self) -> None:
        self._by_process: dict[int, tuple[str, float]] = {}

    def until_now(self) -> dict[str, float]:
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                self._by_process[process.pid] = (place_of(process.cmdline()), times.user + times.system)
        found = {"driver": time.process_time(), "workers": 0.0, "jvm": 0.0, "broker": 0.0}
        for place, seconds in self._by_process.values():
            found[place] += seconds
        return found


def ingested(root: str, servers: str, batch_rows: int) -> list[Moment]:
    """The moments at which the job's batches ended."""
    environment = {
        "DEMO_WAREHOUSE": f"{root}/warehouse",
        "DEMO_CHECKPOINT": f"{root}/checkpoint",
        "DEMO_KAFKA": servers,
    }
    overrides = [f"pipelines.flights.source.options.maxOffsetsPerTrigger={batch_rows}"]
    job = load_job(str(REPOSITORY / CONFIG), overrides=overrides, environment={**os.environ, **environment})
    moments: list[Moment] = []
    spent = Spent()

    def note(progress: PipelineProgress) -> None:
        moments.append(Moment(time.perf_counter(), progress.row_count, spent.until_now()))

    spark = session(job.name, job.spark.master, job.spark.conf)
    run_job(job, spark=spark, on_progress=note)
    spark.stop()
    return [first for first, then in pairwise([*moments, moments[-1]]) if first.changes < then.changes] + [moments[-1]]


def records(servers: str) -> Iterator[bytes | None]:
    """The values of all records, a partition after the other."""
    consumer = KafkaProperties.parse({"bootstrap.servers": servers}).consumer(ErrorNotes())
    for partition in range(PARTITION_COUNT):
        consumer.assign([TopicPartition(TOPIC, partition, 0)])
        _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition))
        reached = 0
        while reached < end:
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    reached = message.offset() + 1
                    yield message.value()
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    reached = max(reached, message.offset())
    consumer.close()


def parsed_per_s(servers: str) -> float:
    started, count = time.perf_counter(), 0
    for value in records(servers):
        count += 1
        if value is not None:
            orjson.loads(value)
    return count / (time.perf_counter() - started)


def main() -> None:
    flights, batch_rows = sized((None, 130_000), quick=(120_000, 60_000), tiny=(60, 50))
    with tempfile.TemporaryDirectory(prefix="fluvial-bench-") as root, Broker(Path(root) / "broker") as broker:
        servers = broker.bootstrap_servers
        properties = KafkaProperties.parse({"bootstrap.servers": servers})
        LogTopics(properties).create_topic(TOPIC, bucket_count=PARTITION_COUNT)
        publish_flights(change_stream(read_flights().slice(0, flights)), properties, TOPIC)
        moments = ingested(root, servers, batch_rows)
        peer = parsed_per_s(servers)
    cold, last = moments[min(COLD_BATCHES, len(moments)) - 1], moments[-1]
    seconds = [then.seconds - first.seconds for first, then in pairwise(moments)]
    changes, took = max(last.changes - cold.changes, 1), max(last.seconds - cold.seconds, 1e-9)
    spent = {place: last.cpu_seconds[place] - cold.cpu_seconds[place] for place in last.cpu_seconds}
    facts = {
        "benchmark": "demo_ingest",
        "commit": commit(),
        "machine": machine(),
        "rows": last.changes,
        "warm_rows": changes,
        "rows_per_s": round(changes / took),
        "rows_per_cpu_s": round(changes / max(sum(spent.values()), 1e-9)),
        "peer": PEER,
        "peer_rows_per_s": round(peer),
        "ratio": round(changes / took / peer, 2),
        "batch_seconds": [round(each, 2) for each in seconds],
        "cpu_us_per_change": {place: round(each / changes * 1e6, 2) for place, each in spent.items()},
        "budget": BUDGET,
        "met": changes / took >= BUDGET,
    }
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
