"""A process that keeps a writer, forks, writes on and ends; started by test_kept_writers.py.

python keeping_process.py SERVERS TOPIC
"""

import json
import os
import sys
import weakref

import pyarrow as pa

from logstore.kafka.clients import KafkaProperties
from logstore.log.kept_writers import writers_of_process
from logstore.log.log_writer import BucketLogWriter, LogTarget


def main() -> None:
    servers, topic = sys.argv[1:]
    properties = KafkaProperties.parse({"bootstrap.servers": servers})
    target = LogTarget(properties=properties, topic=topic, table_uuid=topic, bucket=0)
    kept = writers_of_process()
    writer = BucketLogWriter(target)
    writer.fence()
    end = write_two(writer, 0)
    kept.put(writer)
    child = os.fork()
    if child == 0:
        assert writers_of_process().take(target, end) is None
        of_parent = weakref.ref(writer)
        del writer
        assert of_parent() is not None, "to destroy it is the parent's"
        return  # it ends as any program does, with what it has of its parent's memory
    _, status = os.waitpid(child, 0)
    again = kept.take(target, end)
    assert again is writer
    end = write_two(again, 1)
    kept.put(again)
    print(json.dumps({"child": status, "end": end}))


def write_two(writer: BucketLogWriter, batch: int) -> int:
    writer.begin(query="q", batch=batch)
    writer.append(None, pa.array([b"a", b"b"]))
    return writer.commit(b"files").end_offset


if __name__ == "__main__":
    main()
