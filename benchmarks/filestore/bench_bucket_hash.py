"""The bucket of every key, beside pypaimon (in ``.venv-peers``), which hashes row by row.

Budget: 400 times as fast for integer keys. usage: python -m benchmarks bucket_hash [--quick | --tiny]
"""

import json
import os
import subprocess

import numpy as np
import pyarrow as pa

from benchmarks.harness import REPOSITORY, measure, sized
from filestore.hashing.buckets import bucket_ids
from filestore.types.data_types import data_type_of

BUDGET = 400
PEER_PYTHON = os.environ.get("FLUVIAL_PEERS_PYTHON", str(REPOSITORY / ".venv-peers" / "bin" / "python"))
PEER = """
import json, sys, time
import pyarrow as pa
from pypaimon.schema.data_types import AtomicType, DataField
from pypaimon.schema.table_schema import TableSchema
from pypaimon.write.row_key_extractor import FixedBucketRowKeyExtractor

kind, count = sys.argv[1], int(sys.argv[2])
column = {
    "int": lambda: pa.array(range(count), pa.int32()),
    "bigint": lambda: pa.array(range(count), pa.int64()),
    "string": lambda: pa.array([f"key-{number:010d}" for number in range(count)]),
}[kind]()
schema = TableSchema(
    version=3, id=0, fields=[DataField(0, "k", AtomicType(kind.upper()))], highest_field_id=0, partition_keys=[],
    primary_keys=["k"], options={"bucket": "16"}, comment="", time_millis=0,
)
rows, extractor, best = pa.RecordBatch.from_arrays([column], names=["k"]), FixedBucketRowKeyExtractor(schema), 1e9
for _ in range(5):
    start = time.perf_counter()
    extractor._extract_buckets_batch(rows)
    best = min(best, time.perf_counter() - start)
print(json.dumps({"rows_per_s": count / best}))
"""


def keys(kind: str, count: int) -> pa.Array:
    if kind == "string":
        return pa.array([f"key-{number:010d}" for number in range(count)])
    return pa.array(np.arange(count), pa.int64() if kind == "bigint" else pa.int32())


def main() -> None:
    count, peer_count = sized((4_000_000, 50_000), quick=(200_000, 5_000), tiny=(2_000, 50))
    for kind in ("int", "bigint", "string"):
        column = keys(kind, count)
        types = [data_type_of(column.type, nullable=False)]
        found = measure("bucket_hash", {"fluvial": lambda c=column, t=types: bucket_ids([c], t, 16)}, rows=count)
        done = subprocess.run(
            [PEER_PYTHON, "-c", PEER, kind, str(peer_count)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise SystemExit(f"the peer failed: {done.stderr[-2000:]}")
        peer = json.loads(done.stdout)["rows_per_s"]
        ratio = found.rows_per_s("fluvial") / peer
        budget = {} if kind == "string" else {"budget": BUDGET, "met": ratio >= BUDGET}
        times = {"times_as_fast_as_pypaimon": round(ratio), "pypaimon_rows_per_s": round(peer)}
        print(found.line(peer="fluvial", keys=kind, **times, **budget), flush=True)


if __name__ == "__main__":
    main()
