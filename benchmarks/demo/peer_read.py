"""Reads a table with pypaimon into an Arrow file. Runs in .venv-peers, without Fluvial.

usage: python peer_read.py WAREHOUSE TABLE TARGET
"""

import sys

import pyarrow as pa
from pypaimon import CatalogFactory


def main(warehouse: str, table: str, target: str) -> None:
    """Write all rows of the newest snapshot to a file."""
    builder = CatalogFactory.create({"warehouse": warehouse}).get_table(table).new_read_builder()
    rows = builder.new_read().to_arrow(builder.new_scan().plan().splits())
    with pa.ipc.new_file(target, rows.schema) as sink:
        sink.write_table(rows)


if __name__ == "__main__":
    main(*sys.argv[1:])
