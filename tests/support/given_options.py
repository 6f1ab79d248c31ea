"""The doors through which a reader or writer of one table is given options."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from engine import Catalog, sink, sql
from engine.deploy.checks import check_job
from engine.deploy.config.job_config import load_job
from engine.request.read_keys import BATCH_KEYS, STREAM_KEYS
from engine.request.writer_options import BATCH_WRITE_KEYS
from engine.spark.read_options import ReadOptions
from engine.spark.system_reader import SystemReader, system_schema
from engine.spark.write_options import STREAM_WRITE_KEYS, WriteOptions
from filestore.options.option import At

SCHEMA: Final = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
ROWS: Final = pa.table({"id": [1], "v": [1]}, schema=SCHEMA)
Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Door:
    """A way of giving options to one reader or writer of the table ``d.t``."""

    at: At
    open: Callable[[Catalog, Options], Any]


def _place(catalog: Catalog, table: str = "d.t") -> dict[str, str]:
    return {"warehouse": catalog.warehouse, "table": table}


def _hint(options: Options) -> str:
    return "/*+ OPTIONS(" + ", ".join(f"'{key}'='{value}'" for key, value in options.items()) + ") */"


def _system(catalog: Catalog, options: Options) -> SystemReader:
    given = _place(catalog, "d.t$audit_log") | dict(options)
    return SystemReader(given, system_schema(given))


def _job(catalog: Catalog, options: Options, *, of_sink: bool) -> None:
    lines = "".join(f"        {key}: '{value}'\n" for key, value in options.items())
    source, target = ("", f"    options:\n{lines}") if of_sink else (lines, "")
    path = Path(catalog.warehouse) / "job.yaml"
    path.write_text(
        f"name: job\nwarehouse: {catalog.warehouse}\n"
        "tables:\n  d.u:\n    columns: {id: BIGINT, v: BIGINT}\n    primary_key: [id]\n    options: {bucket: 1}\n"
        "pipelines:\n  - name: copy\n    source:\n      format: fluvial\n      options:\n        table: d.t\n"
        f"{source}    target: d.u\n{target}    checkpoint: {catalog.warehouse}/checkpoints\n"
    )
    check_job(load_job(str(path), environment={}))


DOORS: Final[Mapping[str, Door]] = {
    "read": Door(At.BATCH_READ, lambda c, o: c.table("d.t").read(options=o)),
    "SELECT with a hint": Door(At.BATCH_READ, lambda c, o: sql(None, f"SELECT * FROM d.t {_hint(o)}", c)),
    "spark.read": Door(At.BATCH_READ, lambda c, o: ReadOptions.parse(_place(c) | dict(o), BATCH_KEYS)),
    "spark.read of a system table": Door(At.BATCH_READ, _system),
    "stream": Door(At.STREAM_READ, lambda c, o: c.table("d.t").stream(options=o)),
    "live": Door(At.STREAM_READ, lambda c, o: c.table("d.t").live(options=o)),
    "spark.readStream": Door(At.STREAM_READ, lambda c, o: ReadOptions.parse(_place(c) | dict(o), STREAM_KEYS)),
    "source of a job": Door(At.STREAM_READ, lambda c, o: _job(c, o, of_sink=False)),
    "write": Door(At.BATCH_WRITE, lambda c, o: c.table("d.t").write(ROWS, options=o)),
    "append": Door(At.BATCH_WRITE, lambda c, o: c.table("d.t").append(ROWS, o)),  # type: ignore[arg-type]
    "overwrite": Door(At.BATCH_WRITE, lambda c, o: c.table("d.t").overwrite(ROWS, options=o)),
    "writer": Door(At.BATCH_WRITE, lambda c, o: c.table("d.t").writer("w", options=o)),
    "INSERT with a hint": Door(At.BATCH_WRITE, lambda c, o: sql(None, f"INSERT INTO d.t {_hint(o)} VALUES (2, 2)", c)),
    "df.write": Door(At.BATCH_WRITE, lambda c, o: WriteOptions.parse(_place(c) | dict(o), BATCH_WRITE_KEYS)),
    "sink": Door(At.STREAM_WRITE, lambda c, o: sink(c.table("d.t"), o)),
    "df.writeStream": Door(At.STREAM_WRITE, lambda c, o: WriteOptions.parse(_place(c) | dict(o), STREAM_WRITE_KEYS)),
    "sink of a job": Door(At.STREAM_WRITE, lambda c, o: _job(c, o, of_sink=True)),
}
