"""Lineage against the snapshot files: random histories, and an oracle that knows nothing but the files.

The oracle lists directories and reads JSON. Only which table a name meant when it was read is remembered here, because
files of a dropped table are gone.
"""

import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random
from typing import Any, Final

import orjson
import pyarrow as pa
import pytest

from engine import Catalog, Table, procedures
from engine.lineage.lineage import Lineage, lineage_of
from engine.lineage.origins import PROPERTY, CommitOrigin, SourceRead, batch_barrier
from engine.lineage.store.jdbc import JdbcLineageMeta
from engine.lineage.truth.checked import checked_meta
from engine.request.writer_options import NO_OPTIONS
from engine.write.session import LocalRunner, Upkeep, WriteSession
from lsm.errors import ConflictError, InvalidInputError, UnavailableError

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
NAMES = ("db.a", "db.b", "db.c")
JOBS = ("one", "two")
GONE = "gone"
Row = tuple[str, str, int, str, int]  # run, job, barrier, table, snapshot


@dataclass
class RandomCatalog:
    """A catalog, and what was done to it."""

    root: Path
    random: Random
    catalog: Catalog
    meanings: dict[str, int] = field(default_factory=dict)  # which table a name means: each has a number
    born: dict[tuple[int, str], int] = field(default_factory=dict)  # the creation of each branch, by table and name
    mains: set[int] = field(default_factory=set)  # creations of branches that became main
    meant: dict[tuple[str, int, str], tuple[int, int]] = field(default_factory=dict)  # by run, barrier and name
    runs: dict[str, tuple[str, int]] = field(default_factory=dict)  # of each job: the run, and its next barrier
    numbers: Iterator[int] = field(default_factory=count)

    def create(self, name: str) -> None:
        self.catalog.create_table(name, SCHEMA, primary_key=["id"], options={"bucket": "1"})
        self.meanings[name] = next(self.numbers)

    def some_table(self) -> Table:
        return self.catalog.table(self.random.choice([*self.meanings]))

    def some_branch(self) -> tuple[Table, str] | None:
        found = [name for name in self.places() if "$branch_" in name]
        if not found:
            return None
        base, _, branch = self.random.choice(found).partition("$branch_")
        return self.catalog.table(base), branch

    def places(self) -> dict[str, Path]:
        """Directories of tables and branches, by name."""
        found = {}
        for directory in sorted(self.root.glob("*.db/*")):
            name = f"{directory.parent.name.removesuffix('.db')}.{directory.name}"
            branches = {each.name.removeprefix("branch-"): each for each in (directory / "branch").glob("branch-*")}
            pointer = directory / "MAIN-BRANCH"
            main = pointer.read_text().split()[0] if pointer.exists() else None
            found[name] = branches.get(main, directory) if main else directory
            found |= {f"{name}$branch_{branch}": path for branch, path in branches.items() if branch != main}
        return found

    # ---- what is done

    def write(self) -> None:
        """A batch of a stream, into a table or a branch, from the newest snapshots of others."""
        name = self.random.choice([*self.places()])
        job = self.random.choice(JOBS)
        run, barrier = self.runs.setdefault(job, (f"{job}-{next(self.numbers)}", 0))
        self.runs[job] = (run, barrier + 1)
        others = sorted({*self.places()} - {name})
        sources = [self.catalog.table(each) for each in self.random.sample(others, min(2, len(others)))]
        reads = [read for each in sources if (read := SourceRead.of(each.store, each.latest_snapshot())) is not None]
        for each in reads:
            self.meant[run, barrier, each.table] = self.meaning(each.table)
        origin = CommitOrigin(job=job, barrier_id=barrier, reads=tuple(reads), run=run)
        session = WriteSession(
            self.catalog.table(name).files,
            LocalRunner(),
            commit_user=f"{run}-{name}",
            options=NO_OPTIONS,
            upkeep=Upkeep.BATCH,
            origin=lambda batch_id, rows: origin,
        )
        with session:
            session.write(self.rows().to_batches(), batch_id=barrier)

    def meaning(self, name: str) -> tuple[int, int]:
        """The table and the creation of the branch that a name means; 0: main."""
        base, _, branch = name.partition("$branch_")
        number = self.meanings[base]
        return number, self.born[number, branch] if branch else 0

    def rows(self) -> pa.Table:
        return pa.table({"id": [self.random.randrange(9)], "v": [str(next(self.numbers))]}, schema=SCHEMA)

    def load(self) -> None:
        self.some_table().write(self.rows(), options={"pipeline.name": self.random.choice(JOBS)})

    def new_checkpoint(self) -> None:
        self.runs.pop(self.random.choice(JOBS), None)
        self.write()

    def rollback(self) -> None:
        table = self.some_table()
        if ids := table.store.snapshots.ids():
            procedures.rollback(table, snapshot=self.random.choice(ids), force=True)

    def take_back(self) -> None:
        """By a new commit, to a snapshot, a tag or a savepoint."""
        table = self.some_table()
        if not (ids := table.store.snapshots.ids()):
            return
        how = self.random.choice(("snapshot", "tag", "savepoint"))
        if how == "savepoint":
            [saved] = procedures.create_savepoint(table).to_pylist()
            table.write(self.rows(), options={"pipeline.name": self.random.choice(JOBS)})
            procedures.rollback_to_savepoint(table, saved["savepoint_id"])
        elif how == "snapshot":
            procedures.rollback_to_as_latest(table, snapshot=self.random.choice(ids))
        else:
            procedures.create_tag(table, f"t{next(self.numbers)}", snapshot=self.random.choice(ids))
            table.write(self.rows(), options={"pipeline.name": self.random.choice(JOBS)})
            procedures.rollback_to_as_latest(table, tag=self.random.choice(table.store.snapshots.tag_names()))

    def compact(self) -> None:
        self.some_table().compact(full=True)

    def drop(self) -> None:
        """Mostly made again; one table stays."""
        name = self.random.choice([*self.meanings])
        self.catalog.drop_table(name)
        del self.meanings[name]
        if self.random.random() < 0.7 or not self.meanings:
            self.create(name)

    def rename(self) -> None:
        """Two tables swap their names, or one gets a new one."""
        one = self.random.choice([*self.meanings])
        other = self.random.choice([each for each in (*self.meanings, "db.new", "db.newer") if each != one])
        self.catalog.rename_table(one, "db.between")
        if other in self.meanings:
            self.catalog.rename_table(other, one)
        self.catalog.rename_table("db.between", other)
        found = self.meanings.pop(one)
        if other in self.meanings:
            self.meanings[one] = self.meanings[other]
        self.meanings[other] = found

    def branch(self) -> None:
        """Of a table, or of another branch of it."""
        place = self.random.choice([*self.places()])
        table, base = self.catalog.table(place), place.partition("$")[0]
        if ids := table.store.snapshots.ids():
            name = f"b{self.random.randrange(3)}"
            procedures.create_branch(table, name, snapshot=self.random.choice(ids))
            self.born[self.meanings[base], name] = next(self.numbers) + 1

    def end_branch(self) -> None:
        found = self.some_branch()
        if found is not None:
            table, branch = found
            ends = (
                procedures.replace_main_branch,
                procedures.replace_main_branch,
                procedures.fast_forward,
                procedures.merge_branch,
                procedures.delete_branch,
            )
            end = self.random.choice(ends)
            number, was = self.meanings[table.name], self.main_of(table.name)
            try:
                end(table, branch)
            finally:
                self.note_merge(table, branch)
            if end is procedures.replace_main_branch:
                self.mains.add(self.born[number, branch])
                self.born.pop((number, was), None)
            if end is procedures.delete_branch:
                del self.born[number, branch]

    def rename_branch(self) -> None:
        found = self.some_branch()
        if found is not None:
            table, branch = found
            target, number = f"b{self.random.randrange(3)}", self.meanings[table.name]
            procedures.rename_branch(table, branch, target)
            self.born[number, target] = self.born.pop((number, branch))

    def main_of(self, name: str) -> str:
        pointer = self.root / "db.db" / name.removeprefix("db.") / "MAIN-BRANCH"
        return pointer.read_text().split()[0] if pointer.exists() else "main"

    def note_merge(self, table: Table, branch: str) -> None:
        """What the newest commits have read that are merges of the branch; their process may have died behind them."""
        for place in self.places():
            newest = self.catalog.table(place).latest_snapshot() if place.partition("$")[0] == table.name else None
            if newest is not None and newest.properties.get("fluvial.merged-branch") == branch:
                name = f"{table.name}$branch_{branch}"
                key = (newest.commit_user, batch_barrier(newest.time_ms, newest.commit_user), name)
                self.meant.setdefault(key, self.meaning(name))

    def lose_store(self) -> None:
        for path in (self.root / ".fluvial").glob("lineage.sqlite*"):
            path.unlink()

    # ---- what is true

    def truth(self) -> tuple[set[Row], set[Row], set[Row]]:
        """What barriers have read, what of it may be one row with another, and what they have written.

        A read of a branch that became main is a read of its table, if the store heard of it before the table was gone.
        """
        places = self.places()
        sources, sinks = set(), set()
        of_gone: dict[tuple[str, int, int], set[Row]] = defaultdict(set)  # by run, barrier, table
        for name, directory in places.items():
            for path in directory.glob("snapshot/snapshot-*"):
                body = orjson.loads(path.read_bytes())
                if "$" in name and body["id"] <= (orjson.loads((directory / "ORIGIN").read_bytes())["snapshotId"] or 0):
                    continue  # main's
                properties = body.get("properties", {})
                said = orjson.loads(properties[PROPERTY]) if PROPERTY in properties else None
                if "fluvial.merged-branch" in properties:
                    branch = f"{name}$branch_{properties['fluvial.merged-branch']}"
                    read = {"table": branch, "snapshot": int(properties["fluvial.merged-snapshot"])}
                    barrier = batch_barrier(body["timeMillis"], body["commitUser"])
                    said = {"job": f"merge:{branch}", "barrier": barrier, "reads": [read]}
                if said is None:
                    continue
                run = said.get("run", body["commitUser"])
                sinks.add((run, said["job"], said["barrier"], name, body["id"]))
                for each in said["reads"]:
                    found = self.name_now(run, said["barrier"], each["table"])
                    row = (run, said["job"], said["barrier"], found or GONE, each["snapshot"])
                    sources.add(row)
                    if found is None and (key := (run, said["barrier"], each["table"])) in self.meant:
                        of_gone[run, said["barrier"], self.meant[key][0]].add(row)
        newest = {row[:4]: max(each[4] for each in sources if each[:4] == row[:4]) for row in sources if row[3] != GONE}
        kept = {row for row in sources if newest.get(row[:4], row[4]) == row[4]}  # read as a table and as its branch
        older = {row for rows in of_gone.values() for row in rows if row[4] < max(each[4] for each in rows)}
        return kept, older, sinks

    def name_now(self, run: str, barrier: int, name: str) -> str | None:
        """What a table is called that was read; None: it is gone."""
        if (run, barrier, name) not in self.meant:
            return name if name in self.places() else None
        table, creation = self.meant[run, barrier, name]
        here = [each for each, number in self.meanings.items() if number == table]
        if not here or creation == 0 or creation in self.mains:
            return here[0] if here else None
        branches = [branch for (number, branch), born in self.born.items() if (number, born) == (table, creation)]
        now = f"{here[0]}$branch_{branches[0]}" if branches else ""
        return now if now in self.places() else None

    def first_id(self, name: str) -> int:
        """The oldest snapshot that a table or branch has."""
        return min(self.catalog.table(name).store.snapshots.ids(), default=1)

    def shown(self, entity: Any) -> Row:
        """A row of the store; what is gone has no name in common with a table."""
        table = f"{entity.database}.{entity.table}"
        table = table if table in self.places() else GONE
        return entity.run, entity.job, entity.barrier_id, table, entity.snapshot_id


def lineage_history(root: Path, seed: int, *, steps: int = 20) -> Sequence[str]:
    """One random history in an empty directory, compared on the way and behind it; what happened."""
    world = RandomCatalog(root, Random(seed), Catalog(str(root)))
    for name in NAMES:
        world.create(name)
    choices: tuple[Callable[[], None], ...] = (
        *(world.write,) * 8,
        *(world.load,) * 2,
        *(world.branch,) * 3,
        *(world.end_branch,) * 3,
        *(world.rollback,) * 3,
        *(world.new_checkpoint,) * 2,
        world.rename_branch,
        world.take_back,
        world.drop,
        world.rename,
        world.compact,
        world.lose_store,
    )
    done: list[str] = []
    for _ in range(steps):
        step = world.random.choice(choices)
        trouble = world.random.choice(("none", "none", "none", "down", "dies"))
        done.append(f"{step.__name__} {trouble}")
        with pytest.MonkeyPatch.context() as patch:
            if trouble == "down":
                patch.setattr(JdbcLineageMeta, "store", _refuses)
            if trouble == "dies":
                patch.setattr(Lineage, "store", _dies)
            try:
                step()
            except (InvalidInputError, ConflictError, KeyboardInterrupt) as error:
                done.append(f"  {type(error).__name__} {str(error)[:80]}")
        if world.random.random() < 0.7:
            compare(world, done)
    compare(world, done)
    rebuilt = procedures.repair_lineage.for_all
    assert rebuilt is not None
    assert not any(row["recorded"] or row["dropped"] for row in rebuilt(world.catalog).to_pylist()), done
    compare(world, done)
    return done


_FOUND: Final = 600000  # a barrier that read a table, and again the one that was made under its name


@pytest.mark.sampled(1)
@pytest.mark.sweep
@pytest.mark.parametrize("seed", [*range(int(os.environ.get("FLUVIAL_MODEL_EXAMPLES", "5"))), _FOUND])
def test_every_answer_is_what_the_snapshot_files_say(tmp_path: Path, seed: int) -> None:
    """LN-02, LN-06, LN-28, LN-29, LN-75: after every operation, whether the store answered meanwhile or not."""
    lineage_history(tmp_path, seed)


def compare(world: RandomCatalog, done: list[str]) -> None:
    lineage = lineage_of(world.catalog)
    assert lineage is not None
    true_sources, older, true_sinks = world.truth()
    with checked_meta(lineage, world.catalog) as meta:
        stored = {world.shown(each) for each in meta.sink_data_lineages()}
        without_file = stored - true_sinks  # a replaced main may have had them: as expired ones, they stay
        assert true_sinks <= stored, "\n".join(done)
        assert all(row[4] < world.first_id(row[3]) for row in without_file), "\n".join(done)
        sources = {world.shown(each) for each in meta.source_data_lineages()}
        assert true_sources - older <= sources, "\n".join(done)
        assert {row[:3] for row in sources - true_sources} <= {row[:3] for row in without_file}, "\n".join(done)
        sinks = stored
        jobs = {(each.job, f"{each.database}.{each.table}") for each in meta.sink_table_lineages()}
        assert jobs == {(job, table) for _, job, _, table, _ in sinks}, done
        jobs = {(each.job, f"{each.database}.{each.table}") for each in meta.source_table_lineages()}
        jobs = {(job, table if table in world.places() else GONE) for job, table in jobs}
        assert jobs == {(job, table) for _, job, _, table, _ in sources}, done
    pairs = {(s[3:], r[3:]) for s in sinks for r in sources if s[:3] == r[:3]}
    found = world.catalog.system_table("paimon.upstream_snapshots").to_arrow(filter="depth = 1").to_pylist()
    assert pairs == {
        (
            (f"{each['database']}.{each['table']}", each["snapshot_id"]),
            (upstream if upstream in world.places() else GONE, each["upstream_snapshot_id"]),
        )
        for each in found
        if (upstream := f"{each['upstream_database']}.{each['upstream_table']}")
    }, done
    shown = {
        name: world.catalog.system_table(f"paimon.{name}_snapshot_lineage").to_arrow() for name in ("source", "sink")
    }
    for name, rows in (("source", sources), ("sink", sinks)):
        keys = [(row["job"], row["barrier_id"], row["database"], row["table"]) for row in shown[name].to_pylist()]
        assert len(keys) == len({*keys}), "the key of the PIP"
        assert {key[:2] for key in keys} <= {row[1:3] for row in rows}


def _refuses(self: JdbcLineageMeta, records: object) -> None:
    raise UnavailableError("injected fault")


def _dies(self: Lineage, records: object) -> None:
    raise KeyboardInterrupt
