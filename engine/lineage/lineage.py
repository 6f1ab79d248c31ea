"""The lineage of a catalog: how jobs write it, and what is done when the store does not answer."""

import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import fields, replace
from functools import cache, cached_property
from importlib.metadata import entry_points
from itertools import chain
from typing import Any, Final

import orjson

from engine.lineage.settings import LineageSettings, OpenCatalog, names_place, settings_of
from engine.lineage.store.entities import LineageRecords, time_of
from engine.lineage.store.store import JDBC, LineageMeta, LineageMetaContext, LineageMetaFactory
from filestore.catalog.warehouse import open_warehouse
from filestore.io.file_io import Clock, FileIO, NameSource, RandomNames, SystemClock
from filestore.options.catalog_options import CatalogOptions
from lsm.errors import FluvialError, InvalidInputError, UnavailableError

logger = logging.getLogger("fluvial.lineage")

_REPLAYED_AT_ONCE: Final = 200  # files per transaction
_PAUSE_MS: Final = 30_000  # after a failure, before the next attempt
_LONGEST_SLEEP_S: Final = 30.0
_RETENTION_EVERY_MS: Final = 60_000
_REPLAY_EVERY_MS: Final = 60_000


class Lineage:
    """Stores what jobs do, and reads it back. Picklable: every process opens its own connections."""

    def __init__(
        self,
        settings: LineageSettings,
        *,
        io: FileIO | None = None,
        clock: Clock | None = None,
        names: NameSource | None = None,
        meta: LineageMeta | None = None,
    ) -> None:
        """Create it without connecting.

        Args:
            settings: settings of the catalog.
            io: file access to the warehouse; None: from the settings.
            clock: None: the system clock.
            names: names of queue files; None: random.
            meta: the store; None: from the settings.
        """
        self.settings = settings
        self._given_io, self._given_meta = io, meta
        self._clock = clock or SystemClock()
        self._names = names or RandomNames()
        self._next_replay_ms = 0  # other processes may have queued records
        self._next_attempt_ms = 0
        self._last_queued_ms = 0
        self._retention_ms = 0
        self._is_checked = False
        self._policy: str = settings.catalog_options.lineage_on_unavailable
        self._retained_ms: int | None = settings.catalog_options.lineage_data_time_retained_ms

    def __reduce__(self) -> tuple[Callable[..., "Lineage"], tuple[LineageSettings]]:
        """Another process opens its own files and connections."""
        return Lineage, (self.settings,)

    @cached_property
    def meta(self) -> LineageMeta:
        """The store itself. Raises: InvalidInputError for invalid options."""
        if self._given_meta is not None:
            return self._given_meta
        settings = self.settings
        context = LineageMetaContext(
            options=settings.options, warehouse=settings.warehouse, catalog_id=settings.catalog_id
        )
        return find_factory(self.settings.catalog_options.lineage_meta).create(context)

    def check(self) -> None:
        """Find out before a write, once in a process, whether the store takes the lineage of this catalog.

        A store at its usual place in the warehouse is no other catalog's, and is not looked at.

        Raises:
            InvalidInputError: the options cannot be, or the store belongs to another catalog.
            UnavailableError: the store does not answer, and ``lineage.on-unavailable=fail``.
        """
        if self._is_checked or not names_place(self.settings.options):
            return
        try:
            next(iter(self.meta.job_startups(limit=1)), None)
        except InvalidInputError:
            raise
        except Exception as error:
            if self._policy == "fail":
                raise UnavailableError(f"lineage store does not answer: nothing is written, error={error}") from error
            logger.warning("lineage store does not answer: policy=%s error=%s", self._policy, error)
            self._next_attempt_ms = self._clock.now_ms() + _PAUSE_MS
        else:
            self._is_checked = True

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return self._clock.now_ms()

    def store(self, records: LineageRecords) -> None:
        """Store records, except those that table lineage and data lineage are off for. Idempotent.

        When the store does not answer, ``lineage.on-unavailable`` decides: ``queue`` saves them in the warehouse for
        the next call of any process; ``wait`` retries until it answers; ``fail`` raises. ``queue`` also saves what the
        store refuses because it belongs to another catalog by now.

        Raises:
            UnavailableError: nothing was stored; the rows of the tables are committed nevertheless.
            InvalidInputError: the store belongs to another catalog by now, and the policy is not ``queue``; likewise.
        """
        kept = self.wanted(records)
        if not kept:
            return
        collected = _collected.get()
        if collected is not None:
            collected.append((self, kept))
            return
        policy = self._policy
        sleep_s = 0.1
        while True:
            try:
                if policy == "queue" and self._clock.now_ms() < self._next_attempt_ms:
                    self._enqueue(kept)
                    return
                self._store_now(kept)
            except (UnavailableError, InvalidInputError) as error:
                if policy == "fail" or (policy == "wait" and isinstance(error, InvalidInputError)):
                    raise
                logger.warning("lineage store does not answer: policy=%s error=%s", policy, error)
                if policy == "queue":
                    self._enqueue(kept)
                    self._next_attempt_ms = self._clock.now_ms() + _PAUSE_MS
                    return
                self._clock.sleep(sleep_s)
                sleep_s = min(sleep_s * 2, _LONGEST_SLEEP_S)
            else:
                return

    def replay(self) -> int:
        """Store the queued records, oldest first; a file is deleted when its records are stored.

        Returns:
            Number of files.

        Raises:
            UnavailableError: the store does not answer; the remaining files stay queued.
        """
        directory = self.settings.queue_path
        names = self._io.list_names(directory)
        count = 0
        for start in range(0, len(names), _REPLAYED_AT_ONCE):
            read = {
                path: self._read(path)
                for path in (f"{directory}/{n}" for n in names[start : start + _REPLAYED_AT_ONCE])
            }
            found = {path: records for path, records in read.items() if records is not None}
            if found:
                self._store_in_meta(merged_lineage(list(found.values())))
            for path in found:
                self._io.delete(path)
            count += len(found)
        self._next_replay_ms = self._clock.now_ms() + _REPLAY_EVERY_MS
        return count

    def queued(self) -> Iterator[LineageRecords]:
        """The queued records, which stay in the queue, oldest first."""
        directory = self.settings.queue_path
        read = (self._read(f"{directory}/{name}") for name in self._io.list_names(directory))
        yield from (records for records in read if records is not None)

    def wanted(self, records: LineageRecords) -> LineageRecords:
        """The records without those that table lineage and data lineage are off for."""
        without: dict[str, Any] = {}
        if not self.settings.has_tables:
            without |= {"source_tables": (), "sink_tables": ()}
        if not self.settings.has_snapshots:
            without |= {"source_snapshots": (), "sink_snapshots": (), "startups": ()}
        return replace(records, **without)

    def _store_now(self, records: LineageRecords) -> None:
        if self._clock.now_ms() >= self._next_replay_ms:
            self.replay()
        self._store_in_meta(records)
        retained_ms, now_ms = self._retained_ms, self._clock.now_ms()
        if retained_ms is not None and now_ms >= self._retention_ms:
            self._retention_ms = now_ms + _RETENTION_EVERY_MS
            self.meta.delete_data_lineage_before(time_of(now_ms - retained_ms))

    def _store_in_meta(self, records: LineageRecords) -> None:
        try:
            self.meta.store(records)
        except FluvialError:
            raise
        except Exception as error:  # a third-party store must not end a stream
            raise UnavailableError(f"lineage store failed: error={type(error).__name__}: {error}") from error

    def _enqueue(self, records: LineageRecords) -> None:
        """Save records in the warehouse; file names sort by time."""
        self._last_queued_ms = max(self._last_queued_ms + 1, self._clock.now_ms())
        path = f"{self.settings.queue_path}/{self._last_queued_ms:015d}-{self._names.uuid()}.json"
        self._io.replace(path, orjson.dumps(records.to_json()))
        self._next_replay_ms = 0

    def _read(self, path: str) -> LineageRecords | None:
        """The records of a queue file; None when another process has stored it, or it is broken and stays."""
        try:
            return LineageRecords.from_json(orjson.loads(self._io.read_bytes(path)))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, InvalidInputError) as error:
            logger.warning("lineage in the queue cannot be read, it stays there: path=%s error=%s", path, error)
            return None

    @cached_property
    def _io(self) -> FileIO:
        if self._given_io is not None:
            return self._given_io
        return open_warehouse(
            self.settings.warehouse, CatalogOptions.parse(self.settings.options), environment=os.environ
        ).io


Collected = list[tuple[Lineage, LineageRecords]]
_collected: ContextVar[Collected | None] = ContextVar("collected", default=None)


@contextmanager
def collecting(into: Collected) -> Iterator[None]:
    """Within the block, what this thread stores waits for ``store_collected``: many commits become one transaction.

    For a job that reports its commits again when it ends in between, as a batch of several tables does. Several threads
    may have one list.
    """
    token = _collected.set(into)
    try:
        yield
    finally:
        _collected.reset(token)


def store_collected(collected: Collected) -> None:
    """Store it, in one transaction for each catalog. Raises: see ``Lineage.store``."""
    for lineage in dict.fromkeys(lineage for lineage, _ in collected):
        lineage.store(merged_lineage([records for each, records in collected if each is lineage]))


def lineage_of(catalog: OpenCatalog) -> Lineage | None:
    """The lineage of a catalog, in any process that can open the catalog; None when it records none.

    Raises:
        CorruptDataError: the file with the catalog's options is broken.
    """
    settings = settings_of(catalog)
    return None if settings is None else Lineage(settings)


def merged_lineage(records: Sequence[LineageRecords]) -> LineageRecords:
    """All records in order, as one."""
    kinds = (field.name for field in fields(LineageRecords))
    return LineageRecords(
        **{kind: tuple(chain.from_iterable(getattr(each, kind) for each in records)) for kind in kinds}
    )


# ---- The lineage store of the option ``lineage-meta``


FACTORY_ENTRY_POINTS: Final = "fluvial.lineage"


@cache
def find_factory(identifier: str) -> LineageMetaFactory:
    """The factory of a kind of store: Fluvial's, or an entry point ``fluvial.lineage`` of an installed package.

    Raises:
        InvalidInputError: the identifier is unknown.
    """
    if identifier == JDBC:
        from engine.lineage.store.jdbc import JdbcLineageMetaFactory  # SQLAlchemy is slow to import

        return JdbcLineageMetaFactory()
    others = {each.name: each for each in entry_points(group=FACTORY_ENTRY_POINTS)}
    if identifier not in others:
        raise InvalidInputError(
            f"no such store of lineage: lineage-meta={identifier} known={sorted({JDBC, *others})} "
            f"fix='install a package with this entry point in {FACTORY_ENTRY_POINTS}'"
        )
    factory: LineageMetaFactory = others[identifier].load()()
    return factory
