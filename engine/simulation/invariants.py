"""What must hold at the end of every history, whatever was interleaved, interrupted or unanswered."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from engine.procedures.maintenance.rewriting import rescale
from engine.simulation.log.clients import connected
from engine.simulation.log.invariants import StoredLog, log_problems
from engine.simulation.model import Catalogue, Deed, possible_states, visible
from engine.simulation.operations import TABLE, LogRead, arrow_rows
from engine.simulation.seams import ActorNames, SimulatedTime
from engine.simulation.setups import Setup, catalog_of
from engine.simulation.stored_state import StoredTable, files_below
from engine.table import Table
from filestore.branch.branches import list_branches
from filestore.catalog.catalog import FileCatalog
from filestore.io.file_io import FileIO
from filestore.io.memory_files import MemoryObjects
from filestore.maintenance.orphans import delete_orphans, find_orphans
from filestore.maintenance.snapshot_expiry import expire_snapshots
from filestore.options.log_place import SERVERS_KEY
from filestore.snapshot.retention import Retention
from filestore.table import FileTable
from logstore.kafka.memory.cluster import MemoryCluster
from lsm.errors import FluvialError, InvalidInputError

_CHECKER = 98
_NEWEST_ONLY = Retention(min_count=1, max_count=1, age_ms=0, limit=2**62)
_FAR_FUTURE_MS = 2**60
_PROBE = {999_999: 1}


class Checker:
    """The checks of one history; ``problems`` grows."""

    def __init__(
        self,
        io: FileIO,
        root: str,
        time: SimulatedTime,
        setup: Setup,
        cluster: MemoryCluster,
        until: ExitStack,
        sound: set[int],
    ) -> None:
        """``sound``: grows by the disk of this history if it is in memory: what only a disk decides holds for it."""
        self.problems: list[str] = []
        self._sound = sound
        self._io, self._root, self._setup = io, root, setup
        self._catalog: FileCatalog = catalog_of(root, io, time, ActorNames(_CHECKER))
        self._kafka_address = connected(cluster, time, None, until) if setup.has_log else ""

    def check(self, start: Catalogue, deeds: Sequence[Deed], *, is_calm: bool) -> None:
        """All checks, in an order in which a broken state shows before it is changed.

        Args:
            start: what was there before the history.
            deeds: what was done.
            is_calm: every operation came to its end, without a fault and on one table: none may leave a file behind.
        """
        directory = f"{self._root}/d.db"
        names = [f"d.{name}" for name in self._io.list_names(directory) if not name.startswith(".")]
        tables = {name: StoredTable(self._io, f"{directory}/{name[2:]}") for name in names}
        whole = {name: table for name, table in tables.items() if self._has_schema(table)}
        for name, table in whole.items():
            self._check_roots(name, table)
        if not self.problems:
            self._check_rows(start, deeds, whole)
        if is_calm and not self.problems:
            for name in whole:
                self._check_nothing_left(name)
        disk = self._disk()
        if disk is not None and disk in self._sound and not self.problems:
            return
        if not self.problems:
            for name, table in whole.items():
                self._check_operations(name)
                self._check_reads(name, table)
                self._check_cleaning(name, table)
                self._check_writable(name)
        for name in tables.keys() - whole.keys():
            self._check_free(name)
        if disk is not None and not self.problems:
            self._sound.add(disk)

    def _disk(self) -> int | None:
        """A number for all files and directories; None where they are not in memory, or where a log is beside them."""
        if self._setup.has_log or not isinstance(self._io, MemoryObjects):
            return None
        files = self._io.files
        return hash((type(self._io), self._setup.name, frozenset(files.items()), frozenset(files.names)))

    def check_log(self, log: StoredLog, deeds: Sequence[Deed], reads: Sequence[LogRead]) -> None:
        """The log holds what the table holds, and readers of both got it."""
        table = StoredTable(self._io, f"{self._root}/d.db/{TABLE[2:]}")
        claimed = self._catalog.table(TABLE).store.snapshots.claimed_up_to()
        known = [*table.snapshots(table.main)]
        whole = [root for root in known if int(root.name) >= claimed or root is known[-1]]
        self.problems += log_problems(log, table, whole, deeds, reads, has_key=self._setup.has_key)

    def _has_schema(self, table: StoredTable) -> bool:
        """Whether it is a table: later versions, and other branches, alone are of a change that outlived its table."""
        main = table.branches().get(table.main)
        return main is not None and self._io.exists(f"{main}/schema/schema-0")

    def _check_roots(self, name: str, table: StoredTable) -> None:
        """Every snapshot, tag and savepoint is the table's and has its files; the numbers of snapshots have no gap."""
        self.problems += [f"a former table's commit is in a table: table={name} {root}" for root in table.strays()]
        claims = {found.store.paths.branch: found.store.snapshots.claimed_up_to() for found in self._opened(name)}
        for root in table.roots():
            is_newest = root.kind == "snapshot" and root.name == table.snapshots(root.branch)[-1].name
            if root.kind == "snapshot" and int(root.name) < claims.get(root.branch, 0) and not is_newest:
                continue  # an interrupted expiry has begun to delete it
            try:
                missing = sorted(path for path in table.used(root) if not self._io.exists(path))
            except FileNotFoundError as error:
                missing = [str(error.filename or error)]
            if missing:
                self.problems.append(f"files are missing: table={name} {root} first={missing[0]}")
        for branch in table.branches():
            ids = [int(root.name) for root in table.snapshots(branch)]
            if ids and ids != list(range(ids[0], ids[-1] + 1)):
                self.problems.append(f"the history of snapshots has gaps: table={name} branch={branch} ids={ids}")

    def _check_rows(self, start: Catalogue, deeds: Sequence[Deed], tables: dict[str, StoredTable]) -> None:
        """The tables are in a state that the answers of the operations allow."""
        found = []
        for name, table in sorted(tables.items()):
            found.append((name, table.observed(lambda root, table=table: table.rows(root.snapshot))))  # type: ignore[misc]
            self.problems += table.problems
        with_tags = not self._setup.is_empty and not any(deed.name in ("rollback", "create") for deed in deeds)
        allowed = {visible(state, with_tags=with_tags) for state in possible_states(start, list(deeds))}
        if visible(tuple(found), with_tags=with_tags) not in allowed:
            wanted = " or ".join(_text(state) for state in sorted(allowed, key=repr)[:3])
            self.problems.append(f"rows are not as acknowledged: found={_text(tuple(found))} expected={wanted}")

    def _check_operations(self, name: str) -> None:
        """No operation on a branch is left behind by one that has ended."""
        for path in files_below(self._io, f"{self._root}/d.db/{name[2:]}/branch"):
            if path.endswith("/OPERATION"):
                self.problems.append(f"an operation is in progress for good: table={name} file={path}")

    def _check_reads(self, name: str, table: StoredTable) -> None:
        """The code reads what the files hold."""
        for found in self._opened(name):
            branch = found.store.paths.branch
            snapshots = table.snapshots(branch)
            if not snapshots:
                continue
            wanted = table.rows(snapshots[-1].snapshot)
            read = sorted((row["id"], row["v"]) for row in found.read().to_arrow().to_pylist())
            if read != wanted or found.store.snapshots.latest_id() != int(snapshots[-1].name):
                self.problems.append(f"a read differs from the files: table={name} read={read} files={wanted}")
            self._check_tags(found, table)

    def _check_tags(self, found: FileTable, table: StoredTable) -> None:
        own = [root for root in table.roots() if root.branch == found.store.paths.branch and root.kind == "tag"]
        listed = found.store.snapshots.tag_names()
        if sorted(root.name for root in own) != sorted(listed):
            self.problems.append(f"tags are not listed: table={found.name} listed={listed} files={own}")

    def _check_nothing_left(self, name: str) -> None:
        """The last of two operations that let go of the same files deletes them."""
        left = find_orphans(self._catalog.table(name).store, before_ms=_FAR_FUTURE_MS)
        if left:
            self.problems.append(f"files are left behind: table={name} count={len(left)} first={left[0].path}")

    def _check_cleaning(self, name: str, table: StoredTable) -> None:
        """Expiry leaves one snapshot, and cleaning leaves no file without a use."""
        for found in self._opened(name):
            for _ in expire_snapshots(found.store, _NEWEST_ONLY):
                pass
            left = found.store.snapshots.ids()
            if len(left) > 1:
                self.problems.append(f"expiry makes no progress: table={found.name} snapshots={left}")
            if left and max(found.store.snapshots.claimed_up_to(), found.store.snapshots.earliest_id() or 0) > left[0]:
                self.problems.append(f"snapshots are claimed for good: table={found.name} snapshots={left}")
        store = self._catalog.table(name).store
        delete_orphans(store, find_orphans(store, before_ms=_FAR_FUTURE_MS), progress=lambda done, of: None)
        self._check_roots(name, table)
        if not self.problems:
            used = {path for root in table.roots() for path in table.used(root)}
            unused = sorted(table.kept_files() - used)
            if unused:
                self.problems.append(f"files without a use stay: table={name} count={len(unused)} first={unused[0]}")

    def _check_writable(self, name: str) -> None:
        for found in self._opened(name):
            try:
                self._write(found)
            except InvalidInputError as error:  # a rollback or overwrite went behind a rescale: so says the message
                if "another bucket count" not in str(error):
                    raise
                rescale(Table(found), found.options.bucket)
                found.write(arrow_rows(_PROBE))
            rows = {row["id"]: row["v"] for row in found.read().to_arrow().to_pylist()}
            if not _PROBE.items() <= rows.items():
                self.problems.append(f"a row that was written is not there: table={found.name} rows={rows}")

    def _write(self, found: FileTable) -> None:
        if self._kafka_address:
            Table(found).write(arrow_rows(_PROBE))
        else:
            found.write(arrow_rows(_PROBE))

    def _check_free(self, name: str) -> None:
        """A name without a table can be used again, perhaps behind another drop of what was left there."""
        left = self._io.list_names(f"{self._root}/d.db/{name[2:]}")
        try:
            if left:
                self._catalog.drop_table(name, if_exists=True)
            self._catalog.create_table(name, arrow_rows({}).schema, options=dict(self._setup.options))
        except FluvialError as error:
            self.problems.append(f"a name is blocked: table={name} left={left} error={error}")

    def _opened(self, name: str) -> Iterator[FileTable]:
        """The table on each of its branches."""
        main = self._catalog.table(name)
        yield main.with_options({SERVERS_KEY: self._kafka_address}) if self._kafka_address else main
        for branch in list_branches(main.store):
            yield main.on_branch(branch.name)


def _text(state: Catalogue) -> str:
    parts = []
    for name, table in state:
        said = {branch: dict(rows) for branch, rows in table.branches}
        more = {tag: dict(rows) for tag, _, rows in table.tags}
        saved = sorted(dict(rows).items() for rows in table.savepoints)
        parts.append(f"{name}(main={table.main} {said} tags={more} savepoints={saved})")
    return "; ".join(parts) or "no table"
