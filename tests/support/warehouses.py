"""Tables on disk as users make them: through a catalog, with or without a log."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa

from engine import Catalog, Table
from engine.broker.broker import Broker

ID_SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])


def new_table(
    warehouse: Catalog | Path | str,
    schema: pa.Schema = ID_SCHEMA,
    *,
    name: str | None = None,
    key: Sequence[str] = ("id",),
    broker: Broker | None = None,
    options: Mapping[str, str] | None = None,
    **more: Any,
) -> Table:
    """A table of one bucket, of a name that no other test uses unless one is given; with a log if there is a broker.

    Brokers outlive tests: a table with a log needs a topic, and so a name, of its own.
    """
    catalog = warehouse if isinstance(warehouse, Catalog) else Catalog(str(warehouse))
    log = {} if broker is None else {"log.kafka.bootstrap.servers": broker.bootstrap_servers}
    given = {"bucket": "1", **log, **(options or {})}
    return catalog.create_table(name or f"db.t{uuid4().hex}", schema, primary_key=key, options=given, **more)


def digests_below(directory: Path) -> dict[str, str]:
    """Of each file below a directory."""
    found = [path for path in directory.rglob("*") if path.is_file()]
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in found}
