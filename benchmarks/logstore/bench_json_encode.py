"""Row changes to the log's debezium-json, against orjson once per row.

    python -m benchmarks json_encode [--quick | --tiny]

The peer is the fastest correct loop we know: columns as lists, zipped into a dict per row, decimals spliced in as text.
"""

from collections.abc import Callable, Sequence

import orjson
import pyarrow as pa

from benchmarks.harness import Measurement, measure, sized
from benchmarks.logstore.json_rows import flat_rows, nested_rows
from logstore.format.changelog_json import encode_changes

BATCH_ROWS = 32_768
PEER = "orjson per row"


def encode_per_row(rows: pa.RecordBatch) -> list[bytes]:
    columns = [_python_values(column) for column in rows.columns]
    names = rows.schema.names
    return [
        orjson.dumps({"before": None, "after": dict(zip(names, row, strict=True)), "op": "c"})
        for row in zip(*columns, strict=True)
    ]


def _python_values(column: pa.Array) -> list[object]:
    if pa.types.is_decimal(column.type):
        return [None if text is None else orjson.Fragment(text) for text in column.cast(pa.string()).to_pylist()]
    return (column.cast(pa.string()) if pa.types.is_timestamp(column.type) else column).to_pylist()


def encode_columns(rows: pa.RecordBatch) -> list[bytes]:
    """Fluvial's encoder, up to what the producer takes: a list of bytes."""
    kinds = pa.repeat(pa.scalar(0, pa.int8()), len(rows))
    return encode_changes(rows, kinds, key_names=[], log_format="debezium-json").values.to_pylist()


def compare(name: str, rows: pa.RecordBatch) -> Measurement:
    batches = [rows.slice(start, BATCH_ROWS) for start in range(0, len(rows), BATCH_ROWS)]
    head = rows.slice(0, 1000)
    if [orjson.loads(text) for text in encode_columns(head)] != [orjson.loads(text) for text in encode_per_row(head)]:
        raise SystemExit("the two do not mean the same")
    variants = {"fluvial": lambda: _each(encode_columns, batches), PEER: lambda: _each(encode_per_row, batches)}
    return measure(name, variants, rows=len(rows))


def _each(encode: Callable[[pa.RecordBatch], list[bytes]], batches: Sequence[pa.RecordBatch]) -> None:
    """Nothing is kept: a producer takes the records of one batch and frees them."""
    for batch in batches:
        encode(batch)


def main() -> None:
    row_count = sized(8 * BATCH_ROWS, quick=BATCH_ROWS, tiny=500)
    flat, nested = compare("json_encode", flat_rows(row_count)), compare("nested", nested_rows(row_count))
    facts = {
        "nested_rows_per_s": round(nested.rows_per_s("fluvial")),
        "nested_ratio": round(nested.ratio("fluvial", PEER), 2),
    }
    facts |= {"nested_rows_per_cpu_s": round(nested.rows_per_cpu_s("fluvial"))}
    print(flat.line(peer=PEER, **facts))


if __name__ == "__main__":
    main()
