"""The next step of a history, by chance: few keys, small values, and what has a meaning where the history stands."""

import random
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations
from typing import Any

import pyarrow as pa

from tests.crossings.history import Step
from tests.crossings.play import MAIN, Play
from tests.crossings.space import KEYS, TYPES, WIDTHS
from tests.crossings.ways import may_be_ahead

KEY_COUNT = 5


def operation(play: Play, chance: random.Random) -> Step:
    """Something that changes the table, its columns or its versions."""
    weights: Mapping[Callable[[Play, random.Random], Step | None], int] = {
        _write: 12, _overwrite: 2, _delete: 2, _compact: 4, _versions: 4, _columns: 3, _branches: 3, _back: 2,
        _upkeep: 2, _ahead: 3 if may_be_ahead(play) else 0, _time: 3 if play.cell["expiry"] != "none" else 0,
    }  # fmt: skip
    if not play.main.states:
        return _write(play, chance)
    if "dev" in play.lines:  # a history has few steps, and a merge needs a write on each side before it
        weights = {**weights, _branches: 7}
    if _within_batches(play):  # what may change a batch that is half delivered
        more = {_write: 1, _branches: 1, _time: 10}
        weights = {each: weight * more.get(each, 3) for each, weight in weights.items()}
    while True:
        step = chance.choices(list(weights), weights=list(weights.values()))[0](play, chance)
        if step is not None:
            return step


def looks(play: Play, chance: random.Random, last: Step, count: int) -> Iterator[Step]:
    """Ways to read, after a step: half of them are those that it may break."""
    for _ in range(count):
        apt = _apt(play, chance, last[0]) if chance.random() < 0.5 else None
        step = apt or _look(play, chance)
        yield step
        place = play.followers[step[1]["name"]].place if step[1].get("name") in play.followers else None
        if place is not None and place.to is not None and chance.random() < 0.5:
            yield "follow", _without_none(_followed(play, chance, step[1]["name"], other=True))


def _apt(play: Play, chance: random.Random, name: str) -> Step | None:
    at = chance.randrange(8)
    follows: Step = ("follow", _without_none(_followed(play, chance, _follower(play, chance))))
    differs: Step = ("difference", _two_states(play, chance))
    match name:
        case "rollback" | "wait" | "expire" | "rescale" | "restore" | "overwrite":
            return follows
        case "drop" | "rename" | "add" | "widen" | "grow":
            return _one_of(
                chance, follows, differs, ("snapshot", {"at": at}), ("tagged", {"name": chance.choice("xy")})
            )
        case "compact":
            return _one_of(chance, follows, differs, ("snapshot", {"at": at}))
        case "write":
            return ("union", {}) if play.shape.has_log and chance.random() < 0.3 else follows
    return None


def _look(play: Play, chance: random.Random) -> Step:
    at = chance.randrange(8)
    ways: list[tuple[str, int, dict[str, Any]]] = [
        ("rows", 4, {"columns": _projection(play, chance), "filter": _filter(play, chance)}),
        ("snapshot", 2, {"at": at}),
        ("tagged", 1, {"name": chance.choice("xy")}),
        ("saved", 1, {"at": at}),
        ("at_time", 1, {"at": at}),
        ("audit_log", 1, {}),
        ("union", 2 if play.shape.has_log else 0, {}),
        ("live", 1, {}),
        ("difference", 2, _two_states(play, chance)),
        ("incremental", 2, {**_two_states(play, chance), "changelog": chance.random() < 0.7}),
        ("each_version", 2, _two_states(play, chance)),
        ("verify", 1, {}),
        ("follow", 4, _followed(play, chance, _follower(play, chance, "pqrs"))),
    ]
    if play.cell["iceberg"] != "no":
        compared = [chance.choice(["=", "<>", "<", "<=", ">", ">="]), chance.choice("adgh"), chance.randrange(4)]
        ways.append(("iceberg", 8, {"at": at, "filter": chance.choice([None, compared])}))
    name, _, given = chance.choices(ways, weights=[weight for _, weight, _ in ways])[0]
    return name, _without_none(given)


def _within_batches(play: Play) -> list[str]:
    """The followers of which a batch is half delivered."""
    places = ((name, follower.place) for name, follower in sorted(play.followers.items()))
    return [name for name, place in places if place is not None and place.to is not None]


def _follower(play: Play, chance: random.Random, others: str = "") -> str:
    """One that goes on, or half the time one that stands within a batch, if there is one."""
    within = _within_batches(play)
    return chance.choice(within if within and chance.random() < 0.5 else others or sorted(play.followers) or ["p"])


def _two_states(play: Play, chance: random.Random) -> dict[str, int]:
    """Places of two states, half the time of such as have other columns, if there are any."""
    states = [play.main.states[number] for number in sorted(play.main.states)]
    pairs = list(permutations(range(len(states)), 2))
    apart = [pair for pair in pairs if states[pair[0]].content.columns != states[pair[1]].content.columns]
    before, after = chance.choice(apart if apart and chance.random() < 0.5 else pairs or [(0, 0)])
    return {"before": before, "after": after}


def _without_none(given: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in given.items() if value is not None}


def _followed(play: Play, chance: random.Random, name: str, *, other: bool = False) -> dict[str, Any]:
    known = play.followers.get(name)
    filter = known.filter if known is not None else _filter(play, chance) if chance.random() < 0.25 else None
    return {
        "name": name,
        "batches": chance.choice([None, 2, 3, 4] if known is None else [None, 1, 2, 3]),  # the first one is empty
        "max_rows": chance.choice([None, 1, 1, 2]),
        "trigger": chance.choice([None, None, 1, 2, 5]),
        "columns": _some(chance, [each.slot for each in play.main.content.columns][-6:])
        if chance.random() < (0.7 if other else 0.25)
        else None,
        "normalize": True if play.shape.has_key and name in "pq" else None,
        "filter": filter,
        "start": chance.choice([None, None, 0, 1]) if known is None else None,
        "consumer": True if name == "s" else None,
    }


def _some(chance: random.Random, slots: list[str]) -> list[str]:
    return [slot for slot in slots if chance.random() < 0.5]


def _projection(play: Play, chance: random.Random) -> list[str] | None:
    if chance.random() < 0.5:
        return None
    slots = [each.slot for each in play.main.content.columns]
    return chance.sample(slots, min(len(slots), chance.choice([1, 2, 3])))


def _filter(play: Play, chance: random.Random, depth: int = 2) -> Any:
    simple: dict[str, list[Any]] = {
        "a": [0, 1, 2, 3],
        "d": [0, 1, 2],
        "c": ["x", "yy", ""],
        "p": ["a", "b"],
        "q": [1, 2],
        "g": [0, 1, 2],
    }
    if play.cell["key"] in ("INT", "BOOLEAN, INT"):
        simple["k"] = list(KEYS["INT"][1])
    there = [each.slot for each in play.main.content.columns if each.slot in simple]
    if not there or (depth == 2 and chance.random() < 0.3):
        return None
    if depth and chance.random() < 0.35:
        parts = [_filter(play, chance, depth - 1) for _ in range(2)]
        if None not in parts:
            return chance.choice([["and", *parts], ["or", *parts], ["not", parts[0]]])
    slot = chance.choice(there)
    if chance.random() < 0.2:
        return ["null", slot]
    if chance.random() < 0.2:
        return ["in", slot, chance.sample(simple[slot], 2)]
    return [chance.choice(["=", "<>", "<", "<=", ">", ">="]), slot, chance.choice(simple[slot])]


# ---- operations


def _row(play: Play, chance: random.Random, key: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    more = WIDTHS[play.cell["columns"]]
    filled = {f"x{chance.randrange(more)}" for _ in range(4)} if more else set()
    for column in play.main.content.columns:
        slot = column.slot
        if slot == "k":
            row[slot] = key
        elif slot == "f":
            row[slot] = key % 2 == 0
        elif slot == "p":
            row[slot] = chance.choice("ab")
        elif slot == "q":
            row[slot] = chance.choice([1, 2])
        elif slot == "op":
            continue
        elif slot[0] == "x":
            if slot in filled:
                row[slot] = chance.randrange(3)
        elif chance.random() < 0.75 or (slot in "gh" and play.shape.groups):
            row[slot] = _value(play, chance, slot, column.type)
    return row


def _value(play: Play, chance: random.Random, slot: str, kind: pa.DataType) -> Any:
    if slot == "b":
        return chance.randrange(len(TYPES[play.cell["type"]][1]))
    if slot == "c":
        return chance.choice(["x", "yy", "", "é"])
    if slot == "t":
        return chance.choice([0, 0, 100, 10**6]) + (play.clock.ms // 1000 - 1_700_000_000) // 130 * 130 * chance.choice(
            [0, 1]
        )
    return chance.randrange(4)


def _rows(play: Play, chance: random.Random) -> list[dict[str, Any]]:
    return [_row(play, chance, chance.randrange(KEY_COUNT)) for _ in range(chance.choice([1, 2, 2, 3, 4]))]


def _write(play: Play, chance: random.Random) -> Step:
    rows, takes = _rows(play, chance), play.shape.takes
    branch = chance.choice(sorted(play.lines))
    more = {} if branch == MAIN else {"branch": branch}
    if play.shape.log_is_as_given or (play.cell["rows"] == "counted"):
        given = [change for row in rows for change in _honest(play, chance, row)]
        unique = list({tuple(row.get(slot) for slot in play.shape.key): (row, kind) for row, kind in given}.values())
        if play.cell["rows"] == "counted":
            unique = given
        elif play.shape.log_is_as_given:
            unique = _pairs(play, chance, rows)
        return "write", {"rows": [row for row, _ in unique], "kinds": [kind for _, kind in unique], **more}
    if len(takes) > 1 and chance.random() < 0.8:
        kinds = [_kind(play, chance, row, takes) for row in rows]
        return "write", {"rows": rows, "kinds": kinds, **more}
    return "write", {"rows": rows, **more}


def _ahead(play: Play, chance: random.Random) -> Step:
    given = dict(_write(play, chance)[1])
    given.pop("branch", None)
    return "ahead", given


def _kind(play: Play, chance: random.Random, row: Mapping[str, Any], takes: tuple[str, ...]) -> str:
    return chance.choice(["+I", "+I", "+I", *takes])


def _honest(play: Play, chance: random.Random, row: dict[str, Any]) -> list[tuple[Mapping[str, Any], str]]:
    """An insert, or one that is there taken back."""
    if play.written and chance.random() < 0.35:
        return [(chance.choice(play.written), "-D")]
    return [(row, "+I")]


def _pairs(play: Play, chance: random.Random, rows: list[dict[str, Any]]) -> list[tuple[Mapping[str, Any], str]]:
    """What a source with exact changes sends: each key once, with what it replaces."""
    found: list[tuple[Mapping[str, Any], str]] = []
    taken = set()
    known = play.given
    for row in rows:
        key = tuple(row.get(slot) for slot in play.shape.key)
        if key in taken:
            continue
        taken.add(key)
        old = known.get(key)
        if old is None:
            found.append((row, "+I"))
        elif chance.random() < 0.3 and "-D" in play.shape.takes:
            found.append((old, "-D"))
        elif "-U" in play.shape.takes:
            found += [(old, "-U"), (row, "+U")]
        else:
            found.append((row, "+I"))
    return found


def _overwrite(play: Play, chance: random.Random) -> Step:
    rows = _rows(play, chance)
    choice = chance.random()
    if play.shape.partition and choice < 0.5:
        wanted = {"p": rows[0]["p"]}
        return "overwrite", {"rows": [{**row, **wanted} for row in rows], "partition": wanted}
    return "overwrite", {"rows": rows, **({"partition": {}} if choice > 0.8 else {})}


def _delete(play: Play, chance: random.Random) -> Step | None:
    if play.cell["rows"] != "append" or play.cell["vectors"] == "off":
        return None
    return "delete", {"a": chance.randrange(4)}


def _compact(play: Play, chance: random.Random) -> Step:
    branch = chance.choice(sorted(play.lines))
    return "compact", {"full": chance.random() < 0.5, **({} if branch == MAIN else {"branch": branch})}


def _versions(play: Play, chance: random.Random) -> Step:
    return _one_of(
        chance,
        ("tag", {"name": chance.choice("xy"), "at": chance.randrange(6)}),
        ("tag", {"name": chance.choice("xy"), "at": -1}),
        ("untag", {"name": chance.choice("xy")}),
        ("save", {"compact": chance.random() < 0.7}),
        ("unsave", {"at": chance.randrange(3)}),
        ("expire", {"keep": chance.choice([1, 2])}),
    )


def _columns(play: Play, chance: random.Random) -> Step | None:
    slots = [each.slot for each in play.main.content.columns if each.slot not in (*play.shape.key, "op", "t")]
    if play.cell["new columns"] == "added" and chance.random() < 0.5:
        rows = [{**row, "new": chance.choice([None, 1, 2])} for row in _rows(play, chance)]
        return "grow", {"rows": rows, "name": chance.choice("nm"), "wide": chance.random() < 0.4}
    if not slots:
        return "add", {"name": "n"}
    slot, gone = chance.choice(slots), _dropped_names(play)
    return _one_of(
        chance,
        ("add", {"name": chance.choice(gone) if gone and chance.random() < 0.8 else chance.choice("nm")}),
        ("drop", {"column": slot}),
        ("rename", {"column": slot, "name": chance.choice("nmz")}),
        ("widen", {"column": slot}),
    )


def _dropped_names(play: Play) -> list[str]:
    """Of columns of INT that an older state has, and the newest not: a new one may revive what it held."""
    there = {each.name for each in play.main.content.columns}
    states = [*play.main.states.values(), *play.main.tags.values()]
    known = {each.name for state in states for each in state.content.columns if each.type == pa.int32()}
    return sorted(name for name in known - there if name[0] != "x")


def _branches(play: Play, chance: random.Random) -> Step | None:
    if play.shape.is_late or play.cell["expiry"] != "none":
        return None
    if "dev" not in play.lines:
        return "branch", {"name": "dev", "at": -1 if chance.random() < 0.7 else chance.randrange(6)}
    return _one_of(
        chance,
        ("merge", {"name": "dev", "force": chance.random() < 0.5}),
        ("merge", {"name": "dev"}),
        ("unbranch", {"name": "dev"}),
    )


def _back(play: Play, chance: random.Random) -> Step:
    name = chance.choice(["rollback", "restore", "restore"])
    return name, {"tag": chance.choice(sorted(play.main.tags))} if play.main.tags and chance.random() < 0.4 else {
        "at": chance.randrange(6)
    }


def _upkeep(play: Play, chance: random.Random) -> Step:
    return _one_of(
        chance,
        ("reopen", {}),
        ("clean", {}),
        ("manifests", {}),
        ("reindex", {}),
        ("drop_partition", {"p": chance.choice("ab")}),
        ("expire_partitions", {}),
        ("rescale", {"buckets": chance.choice([1, 2, 4])}),
    )


def _one_of(chance: random.Random, *steps: Step) -> Step:
    return chance.choice(steps)


def _time(play: Play, chance: random.Random) -> Step:
    return "wait", {"seconds": 130}
