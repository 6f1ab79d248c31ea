"""EXPLAIN: Spark's plan of a query, and what is read of each table of Fluvial, and why not less."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import SparkSession
from sqlglot import exp

from engine.dialect.grammar.parser import Explain, SparkStatement
from engine.dialect.grammar.statements import Statement
from engine.dialect.query.query import BoundText
from engine.dialect.query.reads import ReadPlan, StatementReads
from engine.dialect.scope.context import SqlContext
from engine.dialect.scope.names import run_in_spark
from engine.read.frames import divided_plan
from filestore.manifest.entries import DataFileMeta
from filestore.predicate.predicate import columns_of
from filestore.scan.data_split import HasFiles

_CONDITION: Final = pa.struct([("condition", pa.string()), ("used", pa.bool_()), ("reason", pa.string())])
_COUNT: Final = pa.struct([("read", pa.int64()), ("all", pa.int64())])
_LEVEL: Final = pa.struct([("level", pa.int32()), ("files", pa.int64())])
_RANGE: Final = pa.struct([("bucket", pa.int32()), ("start", pa.int64()), ("end", pa.int64())])
_FALLBACK: Final = pa.struct(
    [("branch", pa.string()), ("snapshot_id", pa.int64()), ("partitions", pa.int64()), ("files", pa.int64())]
)
_TABLE: Final = pa.struct(
    [
        ("table", pa.string()),
        ("reference", pa.string()),
        ("snapshot_id", pa.int64()),
        ("source", pa.string()),
        ("fallback", _FALLBACK),
        ("columns", pa.list_(pa.string())),
        ("conditions", pa.list_(_CONDITION)),
        ("partitions", _COUNT),
        ("buckets", _COUNT),
        ("files", _COUNT),
        ("bytes", _COUNT),
        ("levels", pa.list_(_LEVEL)),
        ("files_of_spark", pa.int64()),
        ("merged_splits", pa.int64()),
        ("merged_files", pa.int64()),
        ("merged_because", pa.list_(pa.string())),
        ("log_ranges", pa.list_(_RANGE)),
    ]
)
EXPLAIN_SCHEMA: Final = pa.schema([("plan", pa.string()), ("tables", pa.list_(_TABLE))])
"""One row: the text for people, and the same facts about tables of Fluvial for programs."""


def run_explain(context: SqlContext, statement: Statement) -> pa.Table:
    """What a query would do; nothing of it is computed.

    Args:
        context: the session.
        statement: EXPLAIN of a query, or of anything that is Spark's.

    Returns:
        One row: see ``EXPLAIN_SCHEMA``.

    Raises:
        InvalidInputError: the query cannot be, or the statement writes; points at the place.
    """
    explain = statement.tree
    assert isinstance(explain, Explain)
    words = f"EXPLAIN {explain.mode or ''} "
    inner = explain.inner
    if isinstance(inner.tree, SparkStatement):
        return _result(str(run_in_spark(context, words + inner.text).collect()[0][0]), [])
    if not isinstance(inner.tree, exp.Query | exp.Values):
        raise inner.source.problem("only queries are explained: fix=explain its SELECT", 0, len(inner.text))
    with BoundText.bind(context, inner, StatementReads(context)) as bound:
        bound.frame()  # says what is wrong at its place
        plan = bound.restored(str(bound.frame(words + bound.spliced.text).collect()[0][0]))
        return _result(plan, [_facts(context.spark, each, inner.text) for each in bound.plans])


def _result(plan: str, tables: Sequence[dict[str, Any]]) -> pa.Table:
    lines = [line for facts in tables for line in _lines(facts)]
    text = "\n".join([plan.rstrip(), "", "== Fluvial ==", *lines]) if lines else plan
    return pa.Table.from_pylist([{"plan": text, "tables": list(tables)}], schema=EXPLAIN_SCHEMA)


def _facts(spark: SparkSession, each: ReadPlan, text: str) -> dict[str, Any]:
    read, store = each.read, each.read.table
    names = [name for name in store.schema.column_names if name in {*each.columns, *_filter_columns(each)}]
    divided = divided_plan(spark, each.plan, names)
    rest = divided.rest
    kept, whole = each.plan.splits, read.plan().splits
    return {
        "table": read.table.name,
        "reference": text[each.reference.start : each.reference.stop],
        "snapshot_id": None if read.snapshot is None else read.snapshot.id,
        "source": f"{read.served.source}: {read.served.reason}",
        "fallback": _fallback(each),
        "columns": names,
        "conditions": [
            {"condition": one.text, "used": one.predicate is not None, "reason": one.reason or None}
            for one in each.conditions
        ],
        "partitions": _count(len({split.partition for split in part}) for part in (kept, whole)),
        "buckets": _count(len({(split.partition, split.bucket) for split in part}) for part in (kept, whole)),
        "files": _count(len(_files(part)) for part in (kept, whole)),
        "bytes": _count(sum(split.size_bytes for split in part) for part in (kept, whole)),
        "levels": [
            {"level": level, "files": count}
            for level, count in sorted(Counter(file.level for file in _files(kept)).items())
        ],
        "files_of_spark": len(divided.plain) + len(divided.vectored),
        "merged_splits": len(rest),
        "merged_files": len(_files(split for piece in rest for split in piece.splits)),
        "merged_because": sorted({reason for piece in rest for reason in piece.merge_reasons(read.table)}),
        "log_ranges": [
            {"bucket": one.bucket, "start": one.start_offset, "end": one.end_offset}
            for one in (piece.log_range for piece in rest)
            if one is not None
        ],
    }


def _files(splits: Iterable[HasFiles]) -> list[DataFileMeta]:
    """The files of splits, each once: several may read parts of one."""
    return list({(file.external_path, file.file_name): file for split in splits for file in split.files}.values())


def _fallback(each: ReadPlan) -> dict[str, Any] | None:
    """The partitions that are read from another branch."""
    if each.read.fallback is None:
        return None
    found = [split for piece in each.plan.pieces if piece.is_fallback for split in piece.splits]
    return {
        "branch": each.read.fallback.table.store.paths.branch,
        "snapshot_id": each.read.fallback.snapshot.id,
        "partitions": len({split.partition for split in found}),
        "files": sum(len(split.files) for split in found),
    }


def _filter_columns(each: ReadPlan) -> frozenset[str]:
    return frozenset() if each.plan.filter is None else columns_of(each.plan.filter)


def _count(counts: Iterator[int]) -> dict[str, int]:
    return dict(zip(("read", "all"), counts, strict=True))


def _lines(facts: dict[str, Any]) -> Iterator[str]:
    """The facts about one table for people."""
    yield f"{facts['reference']}: {facts['table']} at snapshot {facts['snapshot_id'] or 'none'} ({facts['source']})"
    if facts["fallback"] is not None:
        words = "  from branch {branch} at snapshot {snapshot_id}: {partitions} partitions, {files} files"
        yield words.format(**facts["fallback"])
    yield f"  columns: {', '.join(facts['columns'])}"
    for one in facts["conditions"]:
        how = "leaves files out" if one["used"] else f"only in Spark: {one['reason']}"
        yield f"  condition: {one['condition']} ({how})"
    counts = [
        f"{what} {facts[what]['read']} of {facts[what]['all']}" for what in ("partitions", "buckets", "files", "bytes")
    ]
    yield f"  reads: {', '.join(counts)}"
    levels = ", ".join(f"level {one['level']}: {one['files']} files" for one in facts["levels"])
    yield f"  levels: {levels or 'none'}"
    yield f"  scanned by Spark: {facts['files_of_spark']} files"
    if facts["merged_splits"]:
        because = ", ".join(facts["merged_because"])
        yield f"  merged: {facts['merged_files']} files in {facts['merged_splits']} tasks ({because})"
    for one in facts["log_ranges"]:
        yield f"  log: bucket {one['bucket']}, offsets {one['start']} to {one['end']}"
