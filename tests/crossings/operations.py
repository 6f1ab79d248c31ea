"""What happens to a table: each operation on the product, and what it makes of the oracle's rows.

An operation that has no meaning at its place is skipped, so that any part of a history is one. One that the product may
refuse says in which words; if it does, nothing may have changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from engine import procedures
from filestore.evolution.schema_change import AddColumn, ChangeType, DropColumn, RenameColumn
from filestore.types.data_types import DataType, data_type_of
from filestore.write.row_deletion import delete_rows
from lsm.errors import FluvialError
from tests.crossings.oracle import Column, Content, MismatchError, Values
from tests.crossings.play import MAIN, NAME, Line, Play, SkippedError

LATER: Final = "2200-01-01"


@contextmanager
def refusable(*messages: str, must: bool = False) -> Iterator[None]:
    """Where the product may say one of these, and then nothing has happened; with ``must`` it has to.

    Raises:
        SkippedError: it did.
        MismatchError: it did not, and had to.
    """
    try:
        yield
    except FluvialError as error:
        if any(each in str(error) for each in messages):
            raise SkippedError from error
        raise
    if must:
        raise MismatchError(f"not refused: expected one of {messages}")


def write(play: Play, rows: list[Mapping[str, Any]], kinds: list[str] | None = None, branch: str = MAIN) -> None:
    """Rows of these kinds, without any: inserts."""
    line = play.line(branch)
    columns = line.content.columns
    if "op" in play.shape.types:
        rows = [{**row, "op": kind} for row, kind in zip(rows, kinds or ["+I"] * len(rows), strict=True)]
    records = [(kind, play.values(row, columns)) for row, kind in zip(rows, kinds or ["+I"] * len(rows), strict=True)]
    news = play.arrow(rows, columns, kinds)
    with refusable(*(("what it replaces", "without", "needs the kind") if play.shape.log_is_as_given else ())):
        line.table.write(news)
    after = line.content.written(records, now_ms=play.clock.ms)
    play.observe(line, after, is_all_seen=_shows_at_once(play))


def _shows_at_once(play: Play) -> bool:
    cell = play.cell
    return cell["vectors"] in ("on", "wide") and cell["write-only"] == "no" and cell["bucket"] != "postponed"


def overwrite(
    play: Play, rows: list[Mapping[str, Any]], partition: Mapping[str, Any] | None = None, branch: str = MAIN
) -> None:
    """Rows instead of those of a partition (all with {}), or of the partitions that they lie in."""
    line, shape = play.line(branch), play.shape
    columns = line.content.columns
    if "op" in shape.types:
        rows = [{**row, "op": "+I"} for row in rows]
    values = [play.values(row, columns) for row in rows]
    line.table.overwrite(play.arrow(rows, columns, None), None if partition is None else dict(partition))
    if partition is None and (not shape.partition or play.cell["overwrite"] == "static"):
        partition = {}
    if partition is None:
        present = {tuple(row.get(name) for name in shape.partition) for row in values}
        kept = line.content.without(lambda row: tuple(row.get(name) for name in shape.partition) in present)
    else:
        wanted = dict(partition)
        kept = line.content.without(lambda row: all(row.get(name) == value for name, value in wanted.items()))
    after = kept.written([("+I", row) for row in values], now_ms=play.clock.ms)
    if play.cell["bucket"] != "postponed" and shape.has_key:
        after = after.all_seen({tuple(row[name] for name in shape.key) for row in values})
    # rows of another partition may wait for a compaction since a restore
    play.observe(line, after, is_all_seen=_shows_at_once(play) and not shape.partition)


def delete(play: Play, a: int) -> None:
    """Rows with this value of the column ``a``, by vectors."""
    line = play.main
    name = {slot: name for name, slot in line.content.slots().items()}.get("a")
    if play.cell["rows"] != "append" or play.cell["vectors"] == "off" or name is None:
        raise SkippedError
    delete_rows(line.table.store, f"`{name}` = {a}")
    play.observe(line, line.content.without(lambda row: row.get("a") == a))


def compact(play: Play, full: bool = False, branch: str = MAIN) -> None:
    """A compaction: what needs it, or everything."""
    line = play.line(branch)
    line.table.compact(full=full)
    play.observe(line, line.content, is_all_seen=full)


def tag(play: Play, name: str, at: int) -> None:
    """A tag of a snapshot."""
    line = play.main
    number = _some(sorted(line.states), at)
    if name in line.tags:
        raise SkippedError
    procedures.create_tag(line.table, name, snapshot=number)
    line.tags[name], line.tag_ids[name] = line.states[number], number


def untag(play: Play, name: str) -> None:
    """A tag goes."""
    line = play.main
    if name not in line.tags:
        raise SkippedError
    with refusable("branch"):
        procedures.delete_tag(line.table, name)
    del line.tags[name], line.tag_ids[name]


def save(play: Play, compact: bool = True) -> None:
    """A savepoint of the newest state."""
    line = play.main
    if not line.states:
        raise SkippedError
    made = procedures.create_savepoint(line.table, compact=compact).to_pylist()[0]
    play.observe(line, line.content, is_all_seen=compact)
    line.saves[made["savepoint_id"]] = line.states[line.newest_id]


def unsave(play: Play, at: int) -> None:
    """A savepoint goes."""
    line = play.main
    number = _some(sorted(line.saves), at)
    with refusable("branch"):
        procedures.delete_savepoint(line.table, number)
    del line.saves[number]


def expire(play: Play, keep: int = 1, branch: str = MAIN) -> None:
    """All snapshots but the newest go, if nothing holds them."""
    line = play.line(branch)
    before = line.table.store.snapshots.ids()
    procedures.expire_snapshots(line.table, retain_max=keep, retain_min=keep, older_than=LATER)
    left = line.table.store.snapshots.ids()
    if left != before[len(before) - len(left) :] or len(left) < min(keep, len(before)):
        raise MismatchError(f"expired: before={before} left={left} keep={keep}")
    line.states = {number: state for number, state in line.states.items() if number in left}
    play.observe(line, line.content)


def rollback(play: Play, at: int | None = None, tag: str | None = None) -> None:
    """Back to a snapshot or a tag; all that is later goes."""
    line = play.main
    if not line.states or (tag is not None and tag not in line.tags):
        raise SkippedError
    number = line.tag_ids[tag] if tag is not None else _some(sorted(line.states), at or 0)
    state = line.tags[tag] if tag is not None else line.states[number]
    has_log = play.shape.has_log
    gone = {each.slot for each in state.content.columns} - {each.slot for each in line.content.columns}
    words = ("branch", "savepoint", "bucket", *(("dropped", "no column", "column", "compacted") if has_log else ()))
    with refusable(*words, must=has_log and bool(gone)):
        procedures.rollback(line.table, snapshot=None if tag else number, tag=tag, force=True)
    if has_log:  # by a new commit, which its readers follow
        line.tags = {name: known for name, known in line.tags.items() if line.tag_ids[name] <= number}
        line.tag_ids = {name: each for name, each in line.tag_ids.items() if each <= number}
        play.observe(line, replace(state.content, columns=line.content.columns))
        return
    line.states = {each: known for each, known in line.states.items() if each <= number}
    line.tags = {name: known for name, known in line.tags.items() if line.tag_ids[name] <= number}
    line.tag_ids = {name: each for name, each in line.tag_ids.items() if each <= number}
    line.saves = {each: known for each, known in line.saves.items() if known in line.tags.values()}
    for follower in play.followers.values():
        follower.went_back(number)
    play.times = [(moment, each) for moment, each in play.times if each <= number]
    play.observe(line, replace(state.content, columns=line.content.columns))


def restore(play: Play, at: int | None = None, tag: str | None = None) -> None:
    """The rows of a snapshot or a tag, by a new commit."""
    line = play.main
    if not line.states or (tag is not None and tag not in line.tags):
        raise SkippedError
    number = line.tag_ids[tag] if tag is not None else _some(sorted(line.states), at or 0)
    state = line.tags[tag] if tag is not None else line.states[number]
    gone = {each.slot for each in state.content.columns} - {each.slot for each in line.content.columns}
    with refusable("dropped", "no column", "column", "bucket", "compacted", must=bool(gone)):
        procedures.rollback_to_as_latest(line.table, snapshot=None if tag else number, tag=tag)
    play.observe(line, replace(state.content, columns=line.content.columns))


def wait(play: Play, seconds: int) -> None:
    """Time passes."""
    play.clock.ms += seconds * 1000
    for line in play.lines.values():
        line.content = line.content.passed(play.clock.ms)


def add(play: Play, name: str, branch: str = MAIN) -> None:
    """A new column, perhaps of the name of one that was dropped."""
    line = play.line(branch)
    if name in line.content.slots():
        raise SkippedError
    _alter(play, line, AddColumn(path=(name,), type=data_type_of(pa.int32(), nullable=True)), "name", "log")
    play.serial += 1
    new = Column(f"{name}{play.serial}", name, pa.int32())
    line.content = replace(line.content, columns=(*line.content.columns, new))


def grow(play: Play, rows: list[Mapping[str, Any]], name: str, wide: bool = False) -> None:
    """Rows with a column that the table has not, ``new`` is its value, and perhaps a wider one: a writer adds them."""
    line = play.main
    if name in line.content.slots() or play.cell["new columns"] == "refused" or play.shape.log_is_as_given:
        raise SkippedError
    slot = f"{name}{play.serial + 1}"
    known = (replace(each, type=pa.int64()) if wide and each.slot == "a" else each for each in line.content.columns)
    columns = (*known, Column(slot, name, pa.int32()))
    rows = [{**{key: value for key, value in row.items() if key != "new"}, slot: row["new"]} for row in rows]
    if "op" in play.shape.types:
        rows = [{**row, "op": "+I"} for row in rows]
    records = [("+I", play.values(row, columns)) for row in rows]
    with refusable("name", "log", "known by all their values"):
        line.table.write(play.arrow(rows, columns, None))
    play.serial += 1
    line.table = play.catalog.table(NAME)
    line.content = replace(line.content, columns=columns)
    play.observe(line, line.content.written(records, now_ms=play.clock.ms), is_all_seen=_shows_at_once(play))


def drop(play: Play, column: str) -> None:
    """A column goes."""
    line = play.main
    name = _named(line, column)
    _alter(
        play,
        line,
        DropColumn((name,)),
        "in use",
        "known by all their values",
        "last column",
        must=play.cell["rows"] == "counted",
    )
    line.content = replace(line.content, columns=tuple(each for each in line.content.columns if each.slot != column))


def rename(play: Play, column: str, name: str) -> None:
    """A column gets another name."""
    line = play.main
    before = _named(line, column)
    if name in line.content.slots():
        raise SkippedError
    _alter(play, line, RenameColumn((before,), name), "log", "partition columns cannot be renamed")
    renamed = tuple(replace(each, name=name) if each.slot == column else each for each in line.content.columns)
    line.content = replace(line.content, columns=renamed)


def widen(play: Play, column: str) -> None:
    """An INT becomes a BIGINT."""
    line = play.main
    name = _named(line, column)
    if next(each for each in line.content.columns if each.slot == column).type != pa.int32():
        raise SkippedError
    counts = play.cell["rows"] == "counted"
    _alter(
        play,
        line,
        ChangeType((name,), DataType(root="BIGINT")),
        "known by all their values",
        "key, partition or bucket",
        must=counts,
    )
    wide = tuple(replace(each, type=pa.int64()) if each.slot == column else each for each in line.content.columns)
    line.content = replace(line.content, columns=wide)


def _alter(play: Play, line: Line, change: Any, *refusals: str, must: bool = False) -> None:
    name = line.table.name
    with refusable(*refusals, must=must):
        play.catalog.alter_table(name, [change])
    line.table = play.catalog.table(name)


def reopen(play: Play) -> None:
    """Another process goes on."""
    for line in play.lines.values():
        line.table = play.catalog.table(line.table.name)


def drop_partition(play: Play, p: str) -> None:
    """All rows of a partition go."""
    line = play.main
    if "p" not in play.shape.partition:
        raise SkippedError
    procedures.drop_partition(line.table, partitions=f"p={p}")
    play.observe(line, line.content.without(lambda row: row.get("p") == p))


def expire_partitions(play: Play) -> None:
    """Partitions whose values are too old go: those of one value."""
    line = play.main
    if play.cell["partition expiry"] == "none" or "p" not in play.shape.partition or not line.states:
        raise SkippedError
    procedures.expire_partitions(line.table)
    play.observe(line, line.content.without(lambda row: row.get("p") == "a"))


def rescale(play: Play, buckets: int) -> None:
    """All rows into another number of buckets."""
    line = play.main
    if play.cell["bucket"] in ("dynamic", "postponed") or not line.states:
        raise SkippedError
    with refusable("branch", "savepoint", "compact the table fully first", "not visible before they are compacted"):
        procedures.rescale(line.table, buckets)
    line.table = play.catalog.table(NAME)
    play.observe(line, line.content)


def clean(play: Play) -> None:
    """Two hours later, what no one refers to goes."""
    play.clock.ms += 26 * 3_600_000
    procedures.remove_orphan_files(play.main.table)
    for line in play.lines.values():
        line.content = line.content.passed(play.clock.ms)
        play.observe(line, line.content)


def manifests(play: Play) -> None:
    """Manifests are merged."""
    procedures.compact_manifest(play.main.table)
    play.observe(play.main, play.main.content)


def reindex(play: Play) -> None:
    """Missing indexes are added."""
    with refusable("index", must=play.cell["index"] == "none"):
        procedures.rewrite_file_index(play.main.table)
    play.observe(play.main, play.main.content)


def branch(play: Play, name: str, at: int = -1) -> None:
    """A branch that begins at a snapshot."""
    line = play.main
    number = _some(sorted(line.states), at)
    if name in play.lines:
        raise SkippedError
    procedures.create_branch(line.table, name, snapshot=number)
    state = line.states[number]
    content = state.content
    table = play.catalog.table(NAME, branch=name)
    play.lines[name] = Line(table, content, states={number: state}, base=content)


def unbranch(play: Play, name: str) -> None:
    """A branch goes."""
    if name == MAIN:
        raise SkippedError
    play.line(name)
    procedures.delete_branch(play.main.table, name)
    del play.lines[name]


def merge(play: Play, name: str, force: bool = False) -> None:
    """What a branch changed comes into main: refused where main changed the same otherwise, unless forced."""
    line, main = play.line(name), play.main
    if name == MAIN or line.base is None or line.content.columns != main.content.columns:
        raise SkippedError
    if any(each.loose for each in (line.base, main.content, line.content)):
        raise SkippedError  # of keys whose rows are not known it is not known which differ
    after, conflicts = _merged(play, line.base, main.content, line.content)
    keyless = not play.shape.has_key
    with refusable(*(("conflict", "changed") if keyless else ()), "the table ignores deletes", "first-row"):
        try:
            procedures.merge_branch(main.table, name, force=force)
        except FluvialError as error:
            if conflicts and not force and "changed" in str(error):
                raise SkippedError from error
            raise
        if conflicts and not force and not keyless:
            raise MismatchError(f"not refused: conflicts={conflicts}")
    line.base = line.content
    play.observe(main, after, is_all_seen=True)


def _merged(play: Play, base: Content, ours: Content, theirs: Content) -> tuple[Content, int]:
    if play.shape.has_key:
        sides = [_by_key(play, each) for each in (base, ours, theirs)]
        changed: dict[Any, Values | None] = {}
        conflicts = 0
        for key in {*sides[0], *sides[1], *sides[2]}:
            was, here, there = (
                (side.get(key), content.shown(side.get(key)))
                for side, content in zip(sides, (base, ours, theirs), strict=True)
            )
            if there[1] in (was[1], here[1]):
                continue
            conflicts += here[1] != was[1]
            changed[key] = there[0]
        return ours.collapsed(changed), conflicts
    bag = dict(ours.bag)
    for key in {*base.bag, *theirs.bag}:
        step = theirs.bag.get(key, (None, 0))[1] - base.bag.get(key, (None, 0))[1]
        values = (theirs.bag.get(key) or base.bag[key])[0]
        count = bag.get(key, (values, 0))[1] + step
        bag[key] = (values, count)
    return replace(ours, bag={key: each for key, each in bag.items() if each[1]}), 0


def _by_key(play: Play, content: Content) -> dict[Any, Values]:
    return {tuple(values[name] for name in play.shape.key): values for values, _ in content.values()}


def _named(line: Line, column: str) -> str:
    name = next((each.name for each in line.content.columns if each.slot == column), None)
    if name is None:
        raise SkippedError
    return name


def _some(numbers: Sequence[int], at: int) -> int:
    if not numbers:
        raise SkippedError
    return numbers[at % len(numbers)]


Operation = Callable[..., None]
OPERATIONS: Final[Mapping[str, Operation]] = {
    each.__name__: each
    for each in (
        write, overwrite, delete, compact, tag, untag, save, unsave, expire, rollback, restore, wait, add, grow, drop,
        rename, widen, reopen, drop_partition, expire_partitions, rescale, clean, manifests, reindex, branch, unbranch,
        merge,
    )
}  # fmt: skip
"""By name; each is called with the history as it is played, and the arguments of its step."""
