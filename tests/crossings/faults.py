"""Faults planted in the product, each of which undoes one law; ``python -m tests.crossings.faults`` finds them.

Each is a small replacement in the code that a law depends on. A fault is found when a history shows something that the
same history does not show without it.
"""

import argparse
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import ismodule
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from engine.follow.live import KeyedRows
from engine.follow.reading import BatchReading
from engine.log import log_tail
from engine.stream.history import TableHistory
from engine.stream.watch import TableWatch
from filestore.branch import key_merge
from filestore.changelog import snapshot_changes
from filestore.compact.compactor import LevelMerge
from filestore.datafile import row_positions, schema_mapping
from filestore.maintenance import snapshot_expiry
from filestore.manifest import avro_walk
from filestore.predicate import evaluation
from filestore.predicate.predicate import Compare, CompareOp
from filestore.scan import pruning
from filestore.table import FileTable, TableRead
from filestore.table_store import TableStore
from lsm.aggregate.aggregates import FieldAggregate
from lsm.aggregate.aggregation import Aggregation
from lsm.merge import partial_update
from lsm.merge.merge_function import Deduplicate, FirstRow
from tests.crossings.campaign import plays
from tests.crossings.run import Violation, replayed

Plant = Callable[[ExitStack], None]


def _instead(stack: ExitStack, place: Any, name: str, make: Callable[[Any], Any]) -> None:
    """Replace an attribute by what is made of it; a function of a module also where others have imported it."""
    before, places = getattr(place, name), [place]
    if ismodule(place) and before.__module__ == place.__name__:
        places += [each for each in [*sys.modules.values()] if each is not place and vars(each).get(name) is before]
    fault = make(before)
    for each in places:
        stack.enter_context(patch.object(each, name, fault))


def _rows_numbered_as_chosen(stack: ExitStack) -> None:
    def make(rows_at: Any) -> Any:
        def fault(store: Any, partition: Any, bucket: Any, file: Any, positions: Any, *more: Any, **how: Any) -> Any:
            if not file.file_name.endswith(".parquet"):
                positions = np.arange(len(positions), dtype=positions.dtype)
            return rows_at(store, partition, bucket, file, positions, *more, **how)

        return fault

    _instead(stack, row_positions, "rows_at", make)


def _sequence_forgotten_by_compactions(stack: ExitStack) -> None:
    def make(init: Any) -> Any:
        def fault(self: Any, files: Any, *more: Any, **how: Any) -> None:
            init(self, files, *more, **how)
            schema = files.store.schema
            options = {key: text for key, text in schema.options.items() if key != "sequence.field"}
            self._inputs = replace(self._inputs, table=files.store._with(replace(schema, options=options)))

        return fault

    _instead(stack, LevelMerge, "__init__", make)


def _vectors_not_applied(stack: ExitStack) -> None:
    def make(rows_not_at: Any) -> Any:
        def fault(store: Any, partition: Any, bucket: Any, file: Any, positions: Any, *more: Any, **how: Any) -> Any:
            kept = positions if file.file_name.endswith(".parquet") else positions[:0]
            return rows_not_at(store, partition, bucket, file, kept, *more, **how)

        return fault

    _instead(stack, row_positions, "rows_not_at", make)


def _retractions_added_to_sums(stack: ExitStack) -> None:
    def make(fold: Any) -> Any:
        def fault(self: FieldAggregate, name: str, operands: Any) -> Any:
            if self.function == "sum":
                operands = replace(operands, retracts=np.zeros(len(operands.rows), np.bool_))
            return fold(self, name, operands)

        return fault

    _instead(stack, FieldAggregate, "fold", make)


def _tags_read_with_the_schema_of_today(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def fault(self: FileTable, found: Any) -> TableRead:
            there = self if found.branch == self.store.paths.branch else self.on_branch(found.branch)
            return TableRead(there, found.snapshot)

        return fault

    _instead(stack, FileTable, "read_found", make)


def _greatest_value_pruned(stack: ExitStack) -> None:
    def make(may_match: Any) -> Any:
        def fault(predicate: Any, ranges: Any, row_count: int) -> bool:
            if isinstance(predicate, Compare) and predicate.op is CompareOp.EQ and predicate.column in ranges:
                known = ranges[predicate.column]
                if known.max == predicate.value and known.min != known.max:
                    return False
            return bool(may_match(predicate, ranges, row_count))

        return fault

    _instead(stack, pruning, "may_match", make)


def _null_is_not_unknown(stack: ExitStack) -> None:
    def make(compare: Any) -> Any:
        def fault(predicate: Any, column: Any, arrow: Any) -> Any:
            found = compare(predicate, column, arrow)
            return found.fill_null(False) if isinstance(found, pa.Array | pa.ChunkedArray) else found

        return fault

    _instead(stack, evaluation, "_build_compare", make)


def _dropped_columns_revive_by_name(stack: ExitStack) -> None:
    def make(map_schema: Any) -> Any:
        def fault(file_fields: Any, read_fields: Any, **how: Any) -> Any:
            by_name = {field.name: field for field in file_fields}
            ids = {field.id for field in file_fields}
            named = [
                replace(field, id=by_name[field.name].id)
                if field.id not in ids and field.name in by_name and by_name[field.name].type == field.type
                else field
                for field in read_fields
            ]
            return map_schema(file_fields, named, **how)

        return fault

    _instead(stack, schema_mapping, "map_schema", make)


def _nulls_overwrite(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def fault(self: Any, values: Any) -> Any:
            return self._rows(self.last_updates)

        return fault

    _instead(stack, partial_update._Fold, "_last_valid", make)


def _first_row_is_the_last(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        def fault(self: FirstRow, rows: Any, order: Any, starts: Any, *, drop_deletes: bool) -> Any:
            return Deduplicate(ignore_delete=self.ignore_delete).merge(rows, order, starts, drop_deletes=drop_deletes)

        return fault

    _instead(stack, FirstRow, "merge", make)


def _overwrites_of_the_other_kind(stack: ExitStack) -> None:
    def make(replaced: Any) -> Any:
        def fault(self: FileTable, present: Any, spec: Any, *, is_static: bool) -> Any:
            if is_static or not self.schema.partition_keys:
                return replaced(self, present, spec, is_static=is_static)
            return (lambda _: True) if self.options.dynamic_partition_overwrite else present.__contains__

        return fault

    _instead(stack, FileTable, "_replaced", make)


def _one_file_too_many_expires(stack: ExitStack) -> None:
    def make(spared: Any) -> Any:
        def fault(step: Any, *more: Any) -> Any:
            found = spared(step, *more)
            kept = [each for each in step.data if each not in found.data]
            return replace(found, data=(*found.data, *kept[:1]))

        return fault

    _instead(stack, snapshot_expiry, "_spared", make)


def _merges_lose_deletes(stack: ExitStack) -> None:
    def make(changes: Any) -> Any:
        def fault(self: Any, rows: pa.Table) -> Any:
            found, kinds = changes(self, rows)
            kept = pa.compute.equal(kinds, 0)
            return found.filter(kept), kinds.filter(kept)

        return fault

    _instead(stack, key_merge._Merge, "_changes", make)


def _deletes_dropped_above_the_top_level(stack: ExitStack) -> None:
    def make(init: Any) -> Any:
        def fault(self: Any, files: Any, *more: Any, **how: Any) -> None:
            init(self, files, *more, **how)
            self._task = replace(self._task, drops_deletes=True)

        return fault

    _instead(stack, LevelMerge, "__init__", make)


def _options_keep_the_names_of_today(stack: ExitStack) -> None:
    def make(_: Any) -> Any:
        return lambda self, schema: replace(self, schema=replace(schema, options=self.schema.options))

    _instead(stack, TableStore, "with_schema", make)


def _union_reads_forget_deletes(stack: ExitStack) -> None:
    def make(log_rows: Any) -> Any:
        def fault(*given: Any, **more: Any) -> Iterator[Any]:
            for each in log_rows(*given, **more):
                kept = pa.compute.not_equal(each.kinds, 3)
                yield replace(each, rows=each.rows.filter(kept), kinds=each.kinds.filter(kept))

        return fault

    _instead(stack, log_tail, "log_rows", make)


def _copies_keep_deleted_rows(stack: ExitStack) -> None:
    def make(apply: Any) -> Any:
        def fault(self: Any, rows: Any, is_add: Any) -> None:
            apply(self, rows.filter(pa.array(is_add)), is_add[is_add])

        return fault

    _instead(stack, KeyedRows, "apply", make)


def _early_retractions_forgotten(stack: ExitStack) -> None:
    _instead(stack, Aggregation, "settled", lambda _: lambda self, rows: rows)


def _rows_expire_while_their_batch_is_read(stack: ExitStack) -> None:
    def make(plan: Any) -> Any:
        return lambda self, snapshot_id, moment_ms: plan(self, snapshot_id, self.moment_of(snapshot_id))

    _instead(stack, TableHistory, "_plan_snapshot", make)


def _changes_counted_in_the_columns_of_today(stack: ExitStack) -> None:
    _instead(stack, BatchReading, "_comparing", lambda _: lambda self, rows: rows)


def _bounded_streams_do_not_look_back(stack: ExitStack) -> None:
    def make(check: Any) -> Any:
        def fault(self: TableWatch, here: Any) -> None:
            if not (self.is_bounded and (self._store.snapshots.latest_id() or 0) < here.newest_id):
                check(self, here)

        return fault

    _instead(stack, TableWatch, "_check_commit", make)


def _shared_files_not_compared(stack: ExitStack) -> None:
    def make(differing: Any) -> Any:
        return lambda *given, **more: differing(*given, **{**more, "shows_same": None})

    _instead(stack, snapshot_changes, "differing_buckets", make)


def _manifests_of_wide_tables_not_decoded(stack: ExitStack) -> None:
    def make(lists: Any) -> Any:
        def fault(self: Any, item: Any, present: Any, **how: Any) -> Any:
            found = lists(self, item, present, **how)
            self._mark(found.counts > 4096)
            return found

        return fault

    _instead(stack, avro_walk._Walk, "_lists", make)


FAULTS: Final[Mapping[str, Plant]] = {
    "rows are numbered as they are chosen (B1)": _rows_numbered_as_chosen,
    "a compaction forgets the sequence field": _sequence_forgotten_by_compactions,
    "deletion vectors are not applied in one format": _vectors_not_applied,
    "a retraction is added to a sum": _retractions_added_to_sums,
    "a tag is read with the schema of today": _tags_read_with_the_schema_of_today,
    "a file is pruned that has the value as its greatest": _greatest_value_pruned,
    "null is false and not unknown": _null_is_not_unknown,
    "a dropped column revives by its name": _dropped_columns_revive_by_name,
    "null overwrites in a partial update": _nulls_overwrite,
    "the first row is the last": _first_row_is_the_last,
    "dynamic overwrites are static, and the other way about": _overwrites_of_the_other_kind,
    "expiry deletes one file too many": _one_file_too_many_expires,
    "a branch merge loses deletes": _merges_lose_deletes,
    "a compaction drops deletes above the top level": _deletes_dropped_above_the_top_level,
    "options keep the names of today in older states": _options_keep_the_names_of_today,
    "union reads forget deletes": _union_reads_forget_deletes,
    "copies in memory keep deleted rows": _copies_keep_deleted_rows,
    "early retractions are forgotten (C5)": _early_retractions_forgotten,
    "rows expire while their batch is read (B2)": _rows_expire_while_their_batch_is_read,
    "changes are counted in the columns of today (B3)": _changes_counted_in_the_columns_of_today,
    "bounded streams do not look back (B7)": _bounded_streams_do_not_look_back,
    "files that two states share are not compared (B8)": _shared_files_not_compared,
    "manifests of wide tables cannot be decoded (A1)": _manifests_of_wide_tables_not_decoded,
}


@contextmanager
def planted(name: str) -> Iterator[None]:
    """The product with a fault, in this process."""
    with ExitStack() as stack:
        FAULTS[name](stack)
        yield


def hunted(name: str, first: int, *, most: int = sys.maxsize, seconds: float = 600.0) -> tuple[int, Violation] | None:
    """The first history that a fault breaks, and how many there were; None: none of them.

    Args:
        name: of the fault.
        first: seed of the cells and histories.
        most: histories at most.
        seconds: processor time at most.
    """
    until = time.process_time() + seconds
    for number, (draw, _) in zip(range(most), plays(first), strict=False):
        if time.process_time() > until:
            return None
        with planted(name):
            found = draw(first + number).violation
        if found is not None and replayed(found.history).violation is None:
            return number + 1, found
    return None


def main(arguments: list[str]) -> int:
    """Returns 1 if a fault is not found."""
    parser = argparse.ArgumentParser(prog="python -m tests.crossings.faults", description=__doc__)
    parser.add_argument("--first", type=int, default=1, help="seed of the first history")
    parser.add_argument("--seconds", type=float, default=600.0, help="processor time for each fault")
    parser.add_argument("--only", default="", help="faults whose name has this")
    given = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    missed = 0
    for name in FAULTS:
        if given.only not in name:
            continue
        began = time.process_time()
        found = hunted(name, given.first, seconds=given.seconds)
        missed += found is None
        taken_s = round(time.process_time() - began, 1)
        what = None if found is None else found[1].what
        print(json.dumps({"fault": name, "histories": found and found[0], "cpu_s": taken_s, "what": what}), flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
