"""The processes of a race: each does one thing to the table again and again, by the calls that users have."""

import faulthandler
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping, MutableSequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from engine import Catalog, Table
from engine import procedures as sys_
from filestore.branch.branches import list_branches
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.refs.savepoint_files import list_savepoints
from lsm.errors import InvalidInputError
from tests.soak.table.journal import UNKNOWN, Deed, Journal, read_journal
from tests.soak.table.kinds import KINDS, Kind

DATABASE: Final = "d"
MOST_TAGS: Final = 6
MOST_SAVEPOINTS: Final = 3
NEEDS_A_LOOK: Final = 3
"""The exit code of a process that does not know what it has done to everyone's rows."""
_MARGIN_MS: Final = 100.0
_NO_SNAPSHOT: Final = ("no such snapshot", "has no snapshot", "nothing was committed")
_NO_BRANCH: Final = ("no such branch", "branch is gone")
_APART_S: Final = (0.3, 1.5)
"""Between two renames, and two ways back: else nothing else comes to its end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Which process this is, and where."""

    home: Path
    kind: str
    slot: str  # role and number, as "writer 1"
    seed: int
    pace_s: float  # between two deeds
    index: int  # of its place in what is shared
    life: int = 0  # how often it was started before

    @property
    def role(self) -> str:
        return self.slot.split()[0]

    @property
    def number(self) -> int:
        return int(self.slot.split()[1])

    @property
    def journal(self) -> Path:
        return self.home / "journals" / f"{self.slot} {self.life}.jsonl"

    @property
    def output(self) -> Path:
        return self.home / "output" / f"{self.slot} {self.life}.txt"

    def life_after(self, count: int) -> "Place":
        """The place of the life behind so many."""
        return replace(self, life=count)


def open_table(home: Path) -> Table:
    """The table, by the name that it has now."""
    catalog = Catalog(str(home / "warehouse"))
    while True:
        names = [each for each in catalog.list_tables(DATABASE) if each.startswith("t")]
        try:
            return catalog.table(f"{DATABASE}.{names[0]}")
        except (InvalidInputError, IndexError):
            time.sleep(0.01)  # it is being renamed


class Actor:
    """A process, and the table that it has open."""

    def __init__(self, place: Place, shared: MutableSequence[float]) -> None:
        self.place, self.kind = place, KINDS[place.kind]
        self.rng = random.Random(f"{place.seed} {place.slot} {place.life}")
        self.journal = Journal(place.journal, shared, place.index, self.has_moved)
        self.table = open_table(place.home)
        self.began_ms = shared

    def has_moved(self) -> bool:
        return not Path(self.table.store.paths.schema(0)).exists()

    def refresh(self) -> None:
        """Open the table again, as a job that starts now, or go on with the one that is open."""
        if self.has_moved() or self.rng.random() < 0.3:
            self.table = open_table(self.place.home)

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def earlier(self) -> list[Deed]:
        """What the lives before did, in order."""
        lives = (self.place.life_after(count) for count in range(self.place.life))
        return [deed for life in lives for deed in read_journal(life.journal, life.slot, ended=0)]

    def tag_names(self) -> list[str]:
        return [name for name in self.table.store.snapshots.tag_names() if name.startswith("t-")]

    def somewhere(self) -> Table:
        """The table, or sometimes one of its branches."""
        if self.chance(0.8):
            return self.table
        names = [each.name for each in list_branches(self.table.store)]
        return Table(self.table.files.on_branch(self.rng.choice(names))) if names else self.table


def run_actor(place: Place, shared: MutableSequence[float]) -> None:
    """Until ``shared[0]`` is set."""
    with place.output.open("ab") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    faulthandler.register(signal.SIGUSR1, all_threads=True)
    actor = Actor(place, shared)
    turn = ROLES[place.role](actor)
    while not shared[0]:
        actor.refresh()
        try:
            turn()
        except InvalidInputError:
            if not actor.has_moved():  # what looked before it began a deed opens the table again
                raise
        time.sleep(actor.rng.expovariate(1 / place.pace_s))


def writer(actor: Actor) -> Callable[[], None]:
    """Writes batch after batch; the odd ones by a name and numbers, each of them until it is known to be there."""
    kind, number = actor.kind, actor.place.number
    earlier = [deed for deed in actor.earlier() if deed.what == "write"]
    batch = max((deed.facts["batch"] for deed in earlier), default=0)
    if number % 2 and earlier and not earlier[-1].is_done:
        batch -= 1  # again

    def write_plain() -> None:
        nonlocal batch
        batch += 1
        with actor.journal.deed("write", writer=number, batch=batch) as deed:
            result = actor.table.write(kind.rows(number, batch))
            deed["id"] = None if result.snapshot is None else result.snapshot.id

    def write_numbered() -> None:
        nonlocal batch
        with (
            actor.journal.deed("hold", may=("branch",)),
            actor.table.writer(f"writer-{number}", max_delay_s=0.0, timeout_s=5.0) as held,
        ):
            for _ in range(actor.rng.randint(1, 12)):
                is_done = False
                with actor.journal.deed("write", writer=number, batch=batch + 1) as deed:
                    deed["id"] = held.write(kind.rows(number, batch + 1), number=batch + 1).result().snapshot_id
                    is_done = True
                if not is_done:
                    return
                batch += 1

    return write_numbered if number % 2 else write_plain


def compactor(actor: Actor) -> Callable[[], None]:
    def compact() -> None:
        with actor.journal.deed("compact", may=_NO_BRANCH):
            actor.somewhere().compact(full=actor.chance(0.4))

    return compact


def expirer(actor: Actor) -> Callable[[], None]:
    has_clock = "tag.creation-period-duration" in actor.kind.options

    def expire() -> None:
        if actor.chance(0.15):
            with actor.journal.deed("expire tags", may=_NO_BRANCH) as deed:
                deed["gone"] = sys_.expire_tags(actor.table)["tag_name"].to_pylist()
        elif has_clock and actor.chance(0.15):
            with actor.journal.deed("clock tags"):
                sys_.trigger_tag_automatic_creation(actor.table, force=True)
        else:
            with actor.journal.deed("expire", may=_NO_BRANCH):
                sys_.expire_snapshots(actor.somewhere(), retain_max=actor.rng.choice([1, 1, 1, 2, 4]), retain_min=1)

    return expire


def reader(actor: Actor) -> Callable[[], None]:
    def read() -> None:
        with actor.journal.deed("read", may=_NO_SNAPSHOT) as deed:
            wanted = actor.rng.choice(actor.table.store.snapshots.ids() or [None]) if actor.chance(0.3) else None
            look(actor.kind, actor.table, deed, snapshot_id=wanted)
            deed["is_newest"] = wanted is None

    return read


def look(kind: Kind, table: Table, deed: dict[str, Any], **where: Any) -> None:
    """Read a state; what it shows is kept."""
    read = table.read(**where)
    deed["id"] = read.served.snapshot_id
    deed["seen"] = kind.seen(read.to_arrow())


def tagger(actor: Actor) -> Callable[[], None]:
    count = sum(deed.what == "tag" for deed in actor.earlier())

    def create() -> None:
        nonlocal count
        count += 1
        name, retained = f"t-{count}", actor.rng.choice([None, None, "1 s", "3 s"])
        with actor.journal.deed(
            "tag", may=("no such snapshot", "tag exists already"), name=name, retained=retained
        ) as deed:
            chosen = actor.rng.choice(actor.table.store.snapshots.ids() or [None]) if actor.chance(0.3) else None
            made = sys_.create_tag(actor.table, name, snapshot=chosen, time_retained=retained)
            deed["id"] = made["tagged_snapshot_id"].to_pylist()[0]

    def replace(name: str) -> None:
        with actor.journal.deed("retag", may=("no such", "a branch"), name=name, retained=None) as deed:
            deed["id"] = sys_.replace_tag(actor.table, name)["tagged_snapshot_id"].to_pylist()[0]

    def rename(name: str) -> None:
        with actor.journal.deed(
            "rename tag", may=("no such", "a branch", "tag exists already"), name=name, target=f"{name}x"
        ):
            sys_.rename_tag(actor.table, name, f"{name}x")

    def delete(name: str) -> None:
        with actor.journal.deed("untag", may=("no such tag", "a branch"), name=name):
            sys_.delete_tag(actor.table, name)

    def read(name: str) -> None:
        with actor.journal.deed("read tag", may=("no such tag",), name=name) as deed:
            look(actor.kind, actor.table, deed, tag=name)

    def turn() -> None:
        names = actor.tag_names()
        if not names or (len(names) < MOST_TAGS and actor.chance(0.4)):
            create()
        else:
            act = actor.rng.choices((delete, read, replace, rename), (5, 3, 1, 1))[0]
            act(actor.rng.choice(names))

    return turn


def saver(actor: Actor) -> Callable[[], None]:
    def create() -> None:
        with actor.journal.deed("save", may=("no snapshot to save",)) as deed:
            made = sys_.create_savepoint(actor.table, compact=actor.chance(0.6)).to_pylist()[0]
            deed["number"], deed["id"] = made["savepoint_id"], made["saved_snapshot_id"]

    def delete(number: int) -> None:
        with actor.journal.deed("unsave", may=("no such savepoint", "a branch"), number=number):
            sys_.delete_savepoint(actor.table, number)

    def read(number: int) -> None:
        with actor.journal.deed("read savepoint", may=("no such savepoint",), number=number) as deed:
            look(actor.kind, actor.table, deed, version=f"savepoint.{number}")

    def turn() -> None:
        numbers = [each.id for each in list_savepoints(actor.table.store)]
        if not numbers or (len(numbers) < MOST_SAVEPOINTS and actor.chance(0.5)):
            create()
        else:
            actor.rng.choice((delete, read))(actor.rng.choice(numbers))

    return turn


def brancher(actor: Actor) -> Callable[[], None]:
    """Makes a branch, writes to it, merges it or not, and deletes it; goes on where its last life was killed."""
    kind, earlier = actor.kind, actor.earlier()
    made = sum(deed.what == "branch" for deed in earlier)
    batch = max((deed.facts["batch"] for deed in earlier if deed.what == "branch write"), default=0)
    begun = earlier[-1] if earlier and not earlier[-1].is_done else None
    gone = (*_NO_BRANCH, "no such tag", "no such snapshot", "branch exists", "does not exist")

    def names() -> list[str]:
        return [each.name for each in list_branches(actor.table.store) if each.name.startswith("b")]

    def create() -> None:
        nonlocal made
        made += 1
        tags = actor.tag_names()
        origin = {"tag": actor.rng.choice(tags)} if tags and actor.chance(0.5) else {}
        with actor.journal.deed("branch", may=gone, name=f"b{made}") as deed:
            newest = actor.table.latest_snapshot()
            if not origin and newest is None:
                raise InvalidInputError("no such snapshot")
            origin = origin or {"snapshot": newest.id}  # type: ignore[union-attr]
            done = sys_.create_branch(actor.table, f"b{made}", **origin).to_pylist()[0]
            deed["id"] = done["tagged_snapshot_id"]

    def write(name: str) -> None:
        nonlocal batch
        batch += 1
        with actor.journal.deed("branch write", may=gone, name=name, writer=9 + int(name[1:]), batch=batch):
            Table(actor.table.files.on_branch(name)).write(kind.rows(9 + int(name[1:]), batch))

    def read(name: str) -> None:
        with actor.journal.deed("read branch", may=gone, name=name) as deed:
            look(kind, Table(actor.table.files.on_branch(name)), deed)

    def merge(name: str) -> None:
        with actor.journal.deed("merge", may=gone, name=name) as deed:
            deed["id"] = sys_.merge_branch(actor.table, name)["snapshot_id"].to_pylist()[0]

    def delete(name: str) -> None:
        with actor.journal.deed("unbranch", may=gone, name=name):
            sys_.delete_branch(actor.table, name)

    def turn() -> None:
        nonlocal begun
        if begun is not None and begun.what in ("merge", "unbranch"):
            {"merge": merge, "unbranch": delete}[begun.what](begun.facts["name"])
            begun = None
            return
        known = names()
        if not known:
            create()
        else:
            act = actor.rng.choices((write, read, merge, delete), (6, 3, 2, 1))[0]
            act(known[0])

    return turn


def cleaner(actor: Actor) -> Callable[[], None]:
    """Cleans with the shortest grace that is right: files from before the oldest deed that is not finished."""

    def clean() -> None:
        now_ms = time.time() * 1000
        before_ms = min([now_ms, *(each for each in actor.began_ms[1:] if each)]) - _MARGIN_MS
        with actor.journal.deed("clean") as deed:
            found = find_orphans(actor.table.store, before_ms=int(before_ms))
            delete_orphans(actor.table.store, found, progress=lambda done, of: None)
            deed["count"] = len(found)
            sys_.remove_orphan_files(actor.table)

    return clean


def roller(actor: Actor) -> Callable[[], None]:
    """Takes the table back, by a new commit or for good."""

    def restore_tag() -> None:
        names = actor.tag_names()
        if not names:
            return
        with actor.journal.deed("restore", may=("no such tag",)) as deed:
            deed["tag"] = actor.rng.choice(names)
            done = sys_.rollback_to_as_latest(actor.table, tag=deed["tag"]).to_pylist()
            restored(deed, done)

    def restore_savepoint() -> None:
        numbers = [each.id for each in list_savepoints(actor.table.store)]
        if not numbers:
            return
        with actor.journal.deed("restore", may=("no such savepoint",)) as deed:
            deed["savepoint"] = actor.rng.choice(numbers)
            restored(deed, sys_.rollback_to_savepoint(actor.table, deed["savepoint"]).to_pylist())

    def restored(deed: dict[str, Any], partitions: list[dict[str, Any]]) -> None:
        """No partition differed: nothing was committed."""
        if partitions:
            deed["to"], deed["id"] = partitions[0]["restored_snapshot_id"], partitions[0]["current_snapshot_id"]

    def roll_back() -> None:
        with actor.journal.deed("roll back", may=("no such snapshot", "a newer branch or savepoint prevents")) as deed:
            newest = actor.table.latest_snapshot()
            deed["to"] = actor.rng.choice([*actor.table.store.snapshots.ids(), 0 if newest is None else newest.id])
            done = sys_.rollback(actor.table, snapshot=deed["to"], force=True).to_pylist()
            deed["gone"] = [[each["kind"], each["name"]] for each in done]

    def turn() -> None:
        time.sleep(actor.rng.uniform(*_APART_S))
        actor.rng.choice((restore_tag, restore_savepoint, roll_back))()
        if actor.journal.outcome == UNKNOWN:
            sys.exit(NEEDS_A_LOOK)

    return turn


def renamer(actor: Actor) -> Callable[[], None]:
    def rename() -> None:
        time.sleep(actor.rng.uniform(*_APART_S))
        actor.refresh()
        name = actor.table.name
        with actor.journal.deed("rename", may=("exists already",), name=name) as deed:
            target = f"{DATABASE}.t{int(name.removeprefix(f'{DATABASE}.t')) + 1}"
            Catalog(str(actor.place.home / "warehouse")).rename_table(name, target)
            deed["target"] = target

    return rename


ROLES: Final[Mapping[str, Callable[[Actor], Callable[[], None]]]] = {
    each.__name__: each
    for each in (writer, compactor, expirer, reader, tagger, saver, brancher, cleaner, roller, renamer)
}
