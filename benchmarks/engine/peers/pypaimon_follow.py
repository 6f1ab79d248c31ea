"""Follow a table with pypaimon's streaming read: seconds to its newest snapshot, as one JSON line.

python pypaimon_follow.py WAREHOUSE TABLE SNAPSHOTS
"""

import json
import sys
import time

import pypaimon


def main() -> None:
    warehouse, name, snapshots = sys.argv[1:]
    table = pypaimon.CatalogFactory.create({"warehouse": warehouse}).get_table(name)
    builder = table.new_stream_read_builder().with_include_row_kind(True).with_poll_interval_ms(10)
    scan, read = builder.new_streaming_scan(), builder.new_read()
    scan.next_snapshot_id = 1
    began, count = time.perf_counter(), 0
    for plan in scan.stream_sync():
        count += read.to_arrow(plan.splits()).num_rows
        if scan.next_snapshot_id > int(snapshots):
            break
    print(json.dumps({"seconds": time.perf_counter() - began, "rows": count}))


if __name__ == "__main__":
    main()
