"""Answers requests, one line of JSON each, with DuckDB's Iceberg extension. Runs in .venv-peers; see duckdb_peer.py."""

import json
import sys

import duckdb
import duckdb_extensions

connection = duckdb.connect()
for name in ("avro", "iceberg"):
    duckdb_extensions.import_extension(name, con=connection)
connection.execute("SET autoinstall_known_extensions = false; LOAD avro; LOAD iceberg; SET threads = 1")
for line in sys.stdin:
    try:
        answer = {"rows": connection.execute(json.loads(line)).fetchall()}
    except duckdb.Error as error:
        answer = {"error": str(error)}
    print(json.dumps(answer, default=str), flush=True)
