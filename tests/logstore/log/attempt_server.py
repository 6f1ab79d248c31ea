"""Attempts to write a batch, each in a process of its own that dies or stops where it is reported to.

Started by test_log_writer.py. Each line of the input is an attempt; this process forks a child for it (it has made no
Kafka client, so that is safe, and a hundred times faster than a new interpreter). Each line of the output is what
happened to one.
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from logstore.kafka.clients import KafkaProperties
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.log.marker import NextStep, next_step
from lsm.errors import FluvialError


def say(**facts: Any) -> None:
    os.write(1, (json.dumps(facts) + "\n").encode())  # one write: lines of several children do not mix


def reached(step: str, spec: Mapping[str, Any]) -> None:
    if step == spec["fault_step"]:
        say(id=spec["id"], reached=step, pid=os.getpid())
        os.kill(os.getpid(), getattr(signal, spec["fault_signal"]))


def salted_rows(spec: Mapping[str, Any], numbers: range) -> pa.Array:
    """Another salt in every attempt, as a query that is not deterministic would have it."""
    return pa.array([json.dumps([spec["batch"], number, spec["salt"]]).encode() for number in numbers], pa.binary())


def attempt(spec: Mapping[str, Any]) -> dict[str, Any]:
    target = LogTarget(
        properties=KafkaProperties.parse({"bootstrap.servers": spec["servers"]}),
        topic=spec["topic"],
        table_uuid=spec["topic"],
        bucket=spec["bucket"],
    )
    reached("start", spec)
    with BucketLogWriter(target, timeout_s=20, eventual=spec["eventual"]) as writer:
        marker = writer.fence()
        reached("fenced", spec)
        step = next_step(marker, query="q", batch=spec["batch"]) if spec["looks_at_marker"] else NextStep.WRITE
        if step is NextStep.STOP:
            return {"stale": True}
        if step is NextStep.ADOPT:
            assert marker is not None
            return {"end": marker.end_offset, "salt": marker.payload.decode(), "adopted": True}
        writer.begin(query="q", batch=spec["batch"])
        half = spec["row_count"] // 2
        writer.append(None, salted_rows(spec, range(half)))
        if spec["fault_step"] == "mid" or spec["eventual"]:
            time.sleep(0.2)  # long enough for rows to reach the broker, and for a chunk of eventual consistency
            reached("mid", spec)
        writer.append(None, salted_rows(spec, range(half, spec["row_count"])))
        reached("before commit", spec)
        timer = threading.Timer(spec["fault_after_s"], reached, ["in commit", spec])
        timer.start()
        done = writer.commit(spec["salt"].encode())
        timer.cancel()
        timer.join()
        reached("after commit", spec)
    return {"start": done.start_offset, "end": done.end_offset, "salt": spec["salt"], "rows": done.row_count}


def child(spec: Mapping[str, Any]) -> None:
    try:
        say(id=spec["id"], result=attempt(spec))
    except FluvialError as error:
        say(id=spec["id"], error=type(error).__name__, text=str(error))
    except BaseException as error:  # noqa: BLE001 - the test must see it, whatever it is
        say(id=spec["id"], error="bug", text=repr(error))
    os._exit(0)


if __name__ == "__main__":
    pa.array([b""]).to_pylist()  # what Arrow loads on its first use takes a second: once, not in each child
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps
    for line in sys.stdin:
        if os.fork() == 0:
            child(json.loads(line))
