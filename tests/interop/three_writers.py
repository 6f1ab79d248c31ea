"""Random histories of tables that Java, pypaimon and Fluvial write in turns, against a dictionary.

``python -m tests.interop.three_writers --seconds 3600 [--first 7] [--only 'vectors']`` takes new seeds for each kind of
table, prints what failed with the command that repeats it, and fails when something did.
"""

import argparse
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from engine import Catalog
from filestore.maintenance.changelog_expiry import expire_changelogs
from filestore.maintenance.orphans import find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.maintenance.verification import verify_files
from filestore.refs.live_references import changelog_references
from filestore.snapshot.retention import Retention
from filestore.tag.tags import create_tag, delete_tag
from tests.peers import DELETE, INSERT, UPDATE_BEFORE, PeerRefusedError, TableDefinition
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.peers.tables import rows_of

COLUMNS: Final = [("p", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "INT"), ("w", "INT"), ("s", "STRING")]
STEPS: Final = 14
_AGGREGATION: Final = {"merge-engine": "aggregation", "fields.v.aggregate-function": "sum",
                       "fields.w.aggregate-function": "max", "fields.s.aggregate-function": "last_value"}  # fmt: skip
_RETRACTING: Final = {**_AGGREGATION, "fields.w.ignore-retract": "true", "fields.s.ignore-retract": "true"}
_GROUPS: Final = {"merge-engine": "partial-update", "fields.w.sequence-group": "v,s"}
_LOOKUP: Final = {"changelog-producer": "lookup"}
_VECTORS: Final = {"deletion-vectors.enabled": "true"}
_DECOUPLED: Final = {"snapshot.num-retained.max": "2", "snapshot.num-retained.min": "1",
                     "changelog.num-retained.max": "5"}  # fmt: skip

KEYED: Final[Mapping[str, Mapping[str, str]]] = {
    "plain": {},
    "two buckets": {"bucket": "2"},
    "dynamic buckets": {"bucket": "-1"},
    "orc": {"file.format": "orc"},
    "avro": {"file.format": "avro"},
    "formats by level": {"file.format.per.level": "0:avro,5:orc"},
    "vectors": _VECTORS,
    "vectors of 64 bits": {**_VECTORS, "deletion-vectors.bitmap64": "true"},
    "input": {"changelog-producer": "input"},
    "lookup": _LOOKUP,
    "full compaction": {"changelog-producer": "full-compaction"},
    "sequence": {"sequence.field": "w"},
    "descending sequence": {"sequence.field": "w", "sequence.field.sort-order": "descending"},
    "partial update": {"merge-engine": "partial-update"},
    "aggregation": _AGGREGATION,
    "aggregation with retracts": {**_RETRACTING, "write-only": "true"},
    "aggregation looked up": {**_AGGREGATION, **_LOOKUP, "file.format": "avro"},
    "sequence group": {**_GROUPS, "write-only": "true"},
    "sums in a sequence group": {**_GROUPS, "fields.v.aggregate-function": "sum", "write-only": "true"},
    "sequence group looked up": {**_GROUPS, **_LOOKUP, "file.format": "avro"},
    "first row": {"merge-engine": "first-row"},
    "ignores deletes": {"ignore-delete": "true"},
    "thin": {"data-file.thin-mode": "true"},
    "no statistics": {"metadata.stats-mode": "none"},
    "full statistics": {"metadata.stats-mode": "full"},
    "prefix": {"data-file.prefix": "mine-", "changelog-file.prefix": "own-"},
    "suffix": {"file.suffix.include.compression": "true"},
    "data directory": {"data-file.path-directory": "data"},
    "orc manifests": {"manifest.format": "orc"},
    "parquet manifests": {"manifest.format": "parquet"},
    "bloom": {"file-index.bloom-filter.columns": "v,s"},
    "input decoupled": {"changelog-producer": "input", **_DECOUPLED},
    "lookup decoupled": {"changelog-producer": "lookup", **_DECOUPLED},
    "cross partition": {"bucket": "-1"},
}
UNKEYED: Final[Mapping[str, Mapping[str, str]]] = {
    "append": {"bucket": "-1"},
    "append in buckets": {"bucket": "2", "bucket-key": "k"},
    "append orc": {"bucket": "-1", "file.format": "orc"},
    "append with vectors": {"bucket": "-1", **_VECTORS},
    "append with indexes": {"bucket": "-1", "file-index.bloom-filter.columns": "s"},
    "append decoupled": {"bucket": "-1", **_DECOUPLED},
    "append with row ids": {"bucket": "-1", "row-tracking.enabled": "true"},
}  # fmt: skip
KINDS: Final = (*KEYED, *UNKEYED)
NAME: Final = "db.t"
_HIDDEN: Final = ("vectors", "vectors of 64 bits", "first row")  # level 0 is not seen before it is compacted
_JAVAS_ALONE: Final = ("orc manifests", "parquet manifests")  # pypaimon reads Avro only
_CROSS: Final = "cross partition"
_NOT_BY_JAVA: Final = ("dynamic buckets", _CROSS)  # its interface for batches takes the bucket of each row
_ORDERED: Final = ("sequence", "descending sequence")
_RETRACTS: Final = ("aggregation with retracts", "sequence group", "sums in a sequence group")
_NOT_DELETED: Final = (
    "partial update",
    "aggregation",
    "aggregation looked up",
    "sequence group looked up",
    "first row",
)


def definition_of(kind: str) -> TableDefinition:
    """The table of a kind."""
    keyed = kind in KEYED
    options = {"bucket": "1", **KEYED[kind]} if keyed else UNKEYED[kind]
    key = (["k"] if kind == _CROSS else ["p", "k"]) if keyed else []
    return TableDefinition(columns=COLUMNS, primary_key=key, partition_by=["p"], options=options)


def key_of(kind: str, row: dict[str, Any]) -> tuple[Any, ...]:
    """The values of the key."""
    return (row["k"],) if kind == _CROSS else (row["p"], row["k"])


def merged(kind: str, state: dict[Any, dict[str, Any]], row: dict[str, Any]) -> None:
    """What a row makes of a keyed table."""
    key = key_of(kind, row)
    old = state.get(key)
    if old is None:
        state[key] = row
    elif kind == "partial update":
        state[key] = {name: old[name] if value is None else value for name, value in row.items()}
    elif "sequence group" in kind:
        sums = _added(old["v"], row["v"], 1)
        state[key] = dict(row if row["w"] >= old["w"] else old)
        if kind.startswith("sums"):
            state[key]["v"] = sums
    elif kind.startswith("aggregation"):
        both = [each for each in (old["w"], row["w"]) if each is not None]
        known = [each for each in (old["v"], row["v"]) if each is not None]
        state[key] = {**row, "v": sum(known) if known else None, "w": max(both, default=None)}
    elif kind in _ORDERED:
        newer = row["w"] >= old["w"] if kind == "sequence" else row["w"] <= old["w"]
        state[key] = row if newer else old
    elif kind != "first row":
        state[key] = row


def _added(old: int | None, new: int | None, sign: int) -> int | None:
    """A sum, or with ``sign`` -1 a difference; null counts as nothing."""
    return old if new is None else (old or 0) + sign * new


def retracted(kind: str, old: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """What is left of a row of a key from which another one is taken back."""
    if kind == "aggregation with retracts":
        return {**old, "v": _added(old["v"], row["v"], -1)}
    is_newer = row["w"] >= old["w"]
    left = {**old, "v": None, "s": None, "w": row["w"]} if is_newer else dict(old)
    return left if kind == "sequence group" else {**left, "v": _added(old["v"], row["v"], -1)}


class History:
    """A table, and what it should hold."""

    def __init__(self, kind: str, seed: int, warehouse: Path, java: JavaPeer, python: PyPaimonPeer) -> None:
        """Make the table, by Java or by Fluvial."""
        self._kind, self._warehouse, self._is_keyed = kind, warehouse, kind in KEYED
        self._definition, self._chance = definition_of(kind), random.Random(f"{kind} {seed}")
        self._readers: list[Any] = [java, FLUVIAL] if kind in _JAVAS_ALONE else [java, python, FLUVIAL]
        self._writers = [each for each in self._readers if each is not java or kind not in _NOT_BY_JAVA]
        if kind == _CROSS:  # pypaimon leaves the row in the other partition
            self._writers = [FLUVIAL]
        self._java, self._compacters = java, [FLUVIAL] if kind in _NOT_BY_JAVA else [java, FLUVIAL]
        self._state: dict[Any, dict[str, Any]] = {}
        self._rows: list[dict[str, Any]] = []
        self._numbers, self._hidden = count(), False
        self._tags: dict[str, list[str]] = {}
        self._done: list[str] = []
        self._chance.choice([java, FLUVIAL]).create(warehouse, NAME, self._definition)

    def run(self) -> int:
        """All steps. Returns: comparisons with each reader. Raises: AssertionError: one reads other rows."""
        steps = {self.write: 6, self.delete: 2, self.compact: 2, self.expire: 1, self.tag: 1, self.compare: 2}
        chosen = [*self._chance.choices([*steps], [*steps.values()], k=STEPS), self.compare]
        for step in chosen:
            step()
        store = FLUVIAL.table(self._warehouse, NAME).store
        problems = [str(each) for each in verify_files(store, progress=lambda done, of: None)]
        assert problems == [], (problems, self._done)
        changelogs = [each.snapshot for each in changelog_references(store) if each.snapshot is not None]
        for number, tag in enumerate(self._tags):
            self._java.delete_tag(self._warehouse, NAME, tag) if number % 2 else delete_tag(store, tag)
        kept = sorted({*store.snapshots.ids(), *(each.id for each in changelogs)})
        assert not kept or kept == [*range(kept[0], kept[-1] + 1)], ("a hole", kept, self._done)
        last = Retention(min_count=1, max_count=1, age_ms=0, limit=100)
        list(expire_snapshots(store, last))  # what Java leaves beside a changelog goes with it
        list(expire_changelogs(store, last))
        left = [each.path for each in find_orphans(store, before_ms=2**53)]
        assert left == [], ("nothing refers to", left, self._done)
        return chosen.count(self.compare)

    def write(self) -> None:
        """Some rows, by any writer."""
        batch = [self._fresh() for _ in range(self._chance.randrange(1, 6))]
        if self._is_keyed:
            batch = [*{key_of(self._kind, row): row for row in batch}.values()]
        if not self._put(self._chance.choice(self._writers), batch, INSERT):
            return
        for row in batch:
            merged(self._kind, self._state, row) if self._is_keyed else self._rows.append(row)

    def delete(self) -> None:
        """A row, of a table whose deletes are of whole rows."""
        if not self._state or self._kind in _NOT_DELETED or self._kind in _ORDERED:
            return
        key = self._chance.choice(sorted(self._state))
        writer = self._chance.choice([each for each in self._writers if each.name != "pypaimon"])
        if self._kind in _RETRACTS:
            row = {**self._fresh(), "p": key[0], "k": key[1]}
            if self._put(writer, [row], self._chance.choice([UPDATE_BEFORE, DELETE])):
                self._state[key] = retracted(self._kind, self._state[key], row)
            return
        if self._put(writer, [self._state[key]], DELETE) and self._kind != "ignores deletes":
            del self._state[key]

    def compact(self) -> None:
        """All of it, fully."""
        writer = self._chance.choice(self._compacters)
        writer.compact(self._warehouse, NAME)
        self._hidden = False
        self._done.append(f"{writer.name} compacts")

    def expire(self) -> None:
        """All but two snapshots."""
        if self._chance.random() < 0.5:
            self._java.expire(self._warehouse, NAME, retain=2)
            self._done.append("java expires")
            return
        kept = Retention(min_count=1, max_count=2, age_ms=0, limit=100)
        list(expire_snapshots(FLUVIAL.table(self._warehouse, NAME).store, kept))
        self._done.append("fluvial expires")

    def tag(self) -> None:
        """The newest snapshot, where all of its rows are seen."""
        snapshot = FLUVIAL.table(self._warehouse, NAME).store.snapshots.latest()
        if snapshot is None or (self._hidden and self._kind in _HIDDEN):
            return
        name = f"tag{len(self._tags)}"
        self._tags[name] = self._expected()
        if self._chance.random() < 0.5:
            self._java.create_tag(self._warehouse, NAME, name, snapshot_id=snapshot.id)
        else:
            create_tag(FLUVIAL.table(self._warehouse, NAME).store, name, snapshot_id=snapshot.id)
        self._done.append(f"{name} at {snapshot.id}")

    def _expected(self) -> list[str]:
        return _sorted([*self._state.values()] if self._is_keyed else self._rows)

    def compare(self) -> None:
        """What each reader finds with what should be there."""
        if self._hidden and self._kind in _HIDDEN:
            self.compact()
        expected = self._expected()
        for reader in self._readers:
            try:
                found = reader.read(self._warehouse, NAME)
            except PeerRefusedError:
                continue
            assert _sorted(found) == expected, f"{reader.name} reads other rows after {self._done}"
            for tag, then in self._tags.items():
                found = reader.read(self._warehouse, NAME, options={"scan.tag-name": tag})
                assert _sorted(found) == then, f"{reader.name} reads other rows of {tag} after {self._done}"
        if self._kind == "append with row ids":
            ids = f"{NAME}$row_tracking"
            found = Catalog(str(self._warehouse)).system_table(ids).to_arrow().to_pylist()
            assert len({row["_ROW_ID"] for row in found}) == len(found), f"rows share an id after {self._done}"
            theirs = self._java.read(self._warehouse, ids)
            assert _sorted(found) == _sorted(theirs), f"java reads other ids after {self._done}"

    def _fresh(self) -> dict[str, Any]:
        number, is_ordered = next(self._numbers), self._kind in _ORDERED
        value = None if not is_ordered and self._chance.random() < 0.2 else number
        weight = number if is_ordered else self._chance.randrange(100)
        place = {"p": self._chance.choice("ab"), "k": self._chance.randrange(6)}
        return {**place, "v": value, "w": weight, "s": f"s{number % 5}"}

    def _put(self, writer: Any, rows: list[dict[str, Any]], kind: int) -> bool:
        """Returns: False: this writer refuses the table."""
        try:
            writer.write(self._warehouse, NAME, rows_of(self._definition, rows), kinds=[kind] * len(rows))
        except PeerRefusedError as error:
            self._done.append(f"{writer.name} refuses: {str(error)[:80]}")
            return False
        self._done.append(f"{writer.name} writes {len(rows)} of kind {kind}")
        self._hidden = True
        return True


def _sorted(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted(row.items())) for row in rows)


def main() -> int:
    """The command. Returns: its exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--first", type=int, default=int(time.time()))
    parser.add_argument("--count", type=int, default=10**9)
    parser.add_argument("--only", choices=KINDS)
    given = parser.parse_args()
    until, failed, runs, compared = time.monotonic() + given.seconds, [], 0, 0
    java, python = JavaPeer(), PyPaimonPeer()
    try:
        for seed in range(given.first, given.first + given.count):
            for kind in (given.only,) if given.only else KINDS:
                if time.monotonic() > until:
                    break
                with tempfile.TemporaryDirectory() as home:
                    try:
                        compared += History(kind, seed, Path(home), java, python).run()
                    except Exception as error:  # noqa: BLE001 - each is printed, and the run goes on
                        traceback.print_exception(error, limit=-3)
                        failed.append(f"--only '{kind}' --first {seed} --count 1")
                        sys.stderr.write(f"FAILED: python -m tests.interop.three_writers {failed[-1]}\n")
                runs += 1
            if time.monotonic() > until:
                break
    finally:
        java.close()
        python.close()
    sys.stdout.write(f"{runs} histories, {compared} comparisons, {len(failed)} failed: {failed}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
