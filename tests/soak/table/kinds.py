"""The tables of a race: what each batch writes, and what a reader must see of the batches that are in a snapshot.

Every writer has groups of rows of its own, and batch ``m`` writes all rows of one group with the value ``m``. A group
lies in all buckets and partitions, so one that shows two batches at once, or half of one, is a commit that was torn.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, combinations
from typing import Any, Final

import pyarrow as pa

GROUPS: Final = 5
"""Of a writer. Batch m is of its group m % GROUPS, so what stays of a batch is a few commits old at least."""
WIDTH: Final = 6
"""Rows of a group."""
DEFAULT_PARTS: Final = 2
_MOST_MAYBE: Final = 12

SCHEMA: Final = pa.schema(
    [
        pa.field("part", pa.int32(), nullable=False),
        pa.field("id", pa.int64(), nullable=False),
        ("v", pa.int64()),  # the batch
        ("n", pa.int64()),  # 1
        ("total", pa.int64()),  # the batch again
    ]
)

Seen = Any
"""What a group shows, as JSON: its batch, its batches, or a count, a sum and the last of them."""


class TornError(AssertionError):
    """Rows that no set of whole batches makes."""


class Shape(Enum):
    """What becomes of the batches of a group."""

    LAST = "last"  # the last one is there; every third deletes half of the group
    EACH = "each"  # all of them are there, each once
    SUM = "sum"  # they are added up


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of table."""

    name: str
    shape: Shape = Shape.LAST
    has_parts: bool = False
    is_lazy: bool = False  # readers see a batch when it is compacted
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @property
    def primary_key(self) -> tuple[str, ...]:
        if self.shape is Shape.EACH:
            return ()
        return ("part", "id") if self.has_parts else ("id",)

    @property
    def partition_by(self) -> tuple[str, ...]:
        return ("part",) if self.has_parts else ()

    def rows(self, writer: int, batch: int) -> pa.Table:
        """What a batch writes, with kinds where there is a key."""
        first = (writer * GROUPS + batch % GROUPS) * WIDTH
        ids = range(first, first + WIDTH)
        columns = {
            "part": [each % DEFAULT_PARTS for each in ids],
            "id": list(ids),
            "v": [batch] * WIDTH,
            "n": [1] * WIDTH,
            "total": [batch] * WIDTH,
        }
        rows = pa.table(columns, schema=SCHEMA)
        if self.shape is not Shape.LAST:
            return rows
        return rows.append_column(
            "_row_kind", pa.array(["-D" if self._is_deleted(each, batch) else "+U" for each in ids])
        )

    def seen(self, rows: pa.Table) -> dict[int, Seen]:
        """What each group shows, by its number. Raises: TornError."""
        found: dict[int, list[dict[str, int]]] = {}
        for row in rows.to_pylist():
            found.setdefault(row["id"] // WIDTH, []).append(row)
        return {group: self._seen(group, of_group) for group, of_group in sorted(found.items())}

    def _seen(self, group: int, rows: Sequence[Mapping[str, int]]) -> Seen:
        first = group * WIDTH
        every = list(range(first, first + WIDTH))
        if self.shape is Shape.EACH:
            ids: dict[int, list[int]] = {}
            for row in rows:
                ids.setdefault(row["v"], []).append(row["id"])
            torn = {batch: sorted(found) for batch, found in ids.items() if sorted(found) != every}
            if torn:
                raise TornError(f"batches are not there whole and once: group={group} ids={torn}")
            return sorted(ids)
        found = sorted(row["id"] for row in rows)
        values = {(row["n"], row["total"], row["v"]) for row in rows}
        if len(values) > 1:
            raise TornError(f"a group shows several batches: group={group} n_total_v={sorted(values)} ids={found}")
        ((n, total, batch),) = values
        wanted = [each for each in every if self.shape is Shape.SUM or not self._is_deleted(each, batch)]
        if found != wanted:
            raise TornError(f"rows of a batch are not those that were written: group={group} v={batch} ids={found}")
        return [n, total, batch] if self.shape is Shape.SUM else batch

    def fits(self, seen: Seen | None, base: Seen | None, added: Iterable[int], maybe: Iterable[int]) -> bool:
        """Whether a group may show this.

        Args:
            seen: what it shows; None: nothing.
            base: what it showed before.
            added: batches that came since.
            maybe: batches that may have come.
        """
        added = set(added)
        open_ = sorted(set(maybe) - added)
        if self.shape is Shape.LAST:
            certain = max(filter(None, (base, *added)), default=None)
            return seen == certain or (seen in open_ and (certain is None or seen > certain))
        if self.shape is Shape.EACH:
            certain_batches = set(base or ()) | added
            return certain_batches <= set(seen or ()) <= certain_batches | set(open_)
        some = chain.from_iterable(combinations(open_[-_MOST_MAYBE:], count) for count in range(len(open_) + 1))
        return any(seen == _summed(base, [*added, *more]) for more in some)

    def _is_deleted(self, key: int, batch: int) -> bool:
        return self.shape is Shape.LAST and batch // GROUPS % 3 == 2 and key % WIDTH % 3 == 1


def _summed(base: Seen | None, batches: Sequence[int]) -> Seen | None:
    if base is None and not batches:
        return None
    n, total, last = base or (0, 0, 0)
    return [n + len(batches), total + sum(batches), max([last, *batches])]


_COMMON: Final = {
    "bucket": "2",
    "num-sorted-run.compaction-trigger": "3",
    "manifest.merge-min-count": "3",
    "snapshot.num-retained.min": "1",
    "snapshot.time-retained": "1 s",
    "write.backpressure": "off",
}
_ALONE: Final = {"write-only": "true"}  # only the job compacts, and only the expiry expires
_CLOCK: Final = {
    "tag.automatic-creation": "process-time",
    "tag.creation-period-duration": "1 min",
    "tag.num-retained-max": "1",
}
_SUMS: Final = {
    "merge-engine": "aggregation",
    "fields.n.aggregate-function": "sum",
    "fields.total.aggregate-function": "sum",
    "fields.v.aggregate-function": "max",
    "fields.part.aggregate-function": "max",
}
KINDS: Final[Mapping[str, Kind]] = {
    each.name: each
    for each in (
        Kind(name="keyed", options={**_COMMON, **_ALONE}),
        Kind(name="parts", has_parts=True, options={**_COMMON, "snapshot.num-retained.max": "2", **_CLOCK}),
        Kind(name="sums", shape=Shape.SUM, options={**_COMMON, **_SUMS, **_ALONE}),
        Kind(
            name="vectors", is_lazy=True,  # in one bucket: what is compacted is seen bucket by bucket
            options={**_COMMON, "bucket": "1", "deletion-vectors.enabled": "true", "changelog-producer": "lookup"},
        ),
        Kind(
            name="append", shape=Shape.EACH,
            options={**_COMMON, **_ALONE, "bucket": "-1", "compaction.min.file-num": "2"},
        ),
        Kind(name="lookup", options={**_COMMON, "changelog-producer": "lookup", "tag.automatic-creation": "batch"}),
        Kind(
            name="buckets", shape=Shape.EACH, has_parts=True,
            options={**_COMMON, "bucket-key": "id", "compaction.min.file-num": "2", **_CLOCK},
        ),
        Kind(
            name="full", has_parts=True,
            options={**_COMMON, **_ALONE, "changelog-producer": "full-compaction", **_CLOCK},
        ),
    )
}  # fmt: skip
