"""The lineage of a catalog: what jobs write through, with what is done when the store does not answer."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import cached_property
from itertools import chain
from typing import Any, Final

import orjson

from engine.lineage.settings import LineageSettings, OpenCatalog, settings_of
from engine.lineage.store.entities import LineageRecords, time_of
from engine.lineage.store.factories import find_factory
from engine.lineage.store.store import LineageMeta, LineageMetaContext
from filestore.catalog.warehouse import open_warehouse
from filestore.io.file_io import Clock, FileIO, NameSource, RandomNames, SystemClock
from filestore.options.catalog_options import CatalogOptions
from lsm.errors import FluvialError, InvalidInputError, UnavailableError

logger = logging.getLogger("fluvial.lineage")

_REPLAYED_AT_ONCE: Final = 200  # files in one transaction
_PAUSE_MS: Final = 30_000  # after a failure, before the store is asked again
_LONGEST_SLEEP_S: Final = 30.0
_RETENTION_EVERY_MS: Final = 60_000
_LOOKS_EVERY_MS: Final = 60_000


class Lineage:
    """Stores what jobs do; reads it back. It can be pickled: every process connects by itself."""

    def __init__(
        self,
        settings: LineageSettings,
        *,
        io: FileIO | None = None,
        clock: Clock | None = None,
        names: NameSource | None = None,
        meta: LineageMeta | None = None,
    ) -> None:
        """Nothing is asked yet.

        Args:
            settings: of the catalog.
            io: where the warehouse is; None: as the settings say.
            clock: None is the machine's.
            names: of files of the queue; None is random.
            meta: the store; None: as the settings say.
        """
        self.settings = settings
        self._given_io, self._given_meta = io, meta
        self._clock = clock or SystemClock()
        self._names = names or RandomNames()
        self._looks_again_ms = 0  # into the queue: others may have left something
        self._asked_again_ms = 0
        self._last_queued_ms = 0
        self._retention_ms = 0
        self._policy: str = settings.catalog_options.lineage_on_unavailable
        self._retained_ms: int | None = settings.catalog_options.lineage_data_time_retained_ms

    def __reduce__(self) -> tuple[Callable[..., "Lineage"], tuple[LineageSettings]]:
        """Another process opens files and connections anew."""
        return Lineage, (self.settings,)

    @cached_property
    def meta(self) -> LineageMeta:
        """The store itself. Raises: InvalidInputError for options that cannot be."""
        if self._given_meta is not None:
            return self._given_meta
        settings = self.settings
        context = LineageMetaContext(
            options=settings.options, warehouse=settings.warehouse, catalog_id=settings.catalog_id
        )
        return find_factory(self.settings.catalog_options.lineage_meta).create(context)

    def now_ms(self) -> int:
        """Epoch milliseconds of its clock."""
        return self._clock.now_ms()

    def store(self, records: LineageRecords) -> None:
        """Keep records; what table lineage and data lineage are off for is left out. Storing them again is fine.

        When the store does not answer, ``lineage.on-unavailable`` decides: ``queue`` notes them in the warehouse, and
        whoever stores next brings them in; ``wait`` tries until it answers; ``fail`` raises.

        Raises:
            UnavailableError: nothing was kept; the rows of the tables are committed all the same.
        """
        kept = self._wanted(records)
        if not kept:
            return
        policy = self._policy
        sleep_s = 0.1
        while True:
            try:
                if policy == "queue" and self._clock.now_ms() < self._asked_again_ms:
                    self._enqueue(kept)
                    return
                self._store_now(kept)
            except UnavailableError as error:
                if policy == "fail":
                    raise
                logger.warning("lineage store does not answer: policy=%s error=%s", policy, error)
                if policy == "queue":
                    self._enqueue(kept)
                    self._asked_again_ms = self._clock.now_ms() + _PAUSE_MS
                    return
                self._clock.sleep(sleep_s)
                sleep_s = min(sleep_s * 2, _LONGEST_SLEEP_S)
            else:
                return

    def replay(self) -> int:
        """Bring in what waits in the queue, oldest first; a file goes when its records are stored.

        Returns:
            files that were brought in.

        Raises:
            UnavailableError: the store does not answer; the rest waits.
        """
        directory = self.settings.queue_path
        names = self._io.list_names(directory)
        brought = 0
        for start in range(0, len(names), _REPLAYED_AT_ONCE):
            read = {
                path: self._read(path)
                for path in (f"{directory}/{n}" for n in names[start : start + _REPLAYED_AT_ONCE])
            }
            found = {path: records for path, records in read.items() if records is not None}
            if found:
                self._asked(merged_lineage(list(found.values())))
            for path in found:
                self._io.delete(path)
            brought += len(found)
        self._looks_again_ms = self._clock.now_ms() + _LOOKS_EVERY_MS
        return brought

    def _store_now(self, records: LineageRecords) -> None:
        if self._clock.now_ms() >= self._looks_again_ms:
            self.replay()
        self._asked(records)
        retained_ms, now_ms = self._retained_ms, self._clock.now_ms()
        if retained_ms is not None and now_ms >= self._retention_ms:
            self._retention_ms = now_ms + _RETENTION_EVERY_MS
            self.meta.delete_data_lineage_before(time_of(now_ms - retained_ms))

    def _asked(self, records: LineageRecords) -> None:
        try:
            self.meta.store(records)
        except FluvialError:
            raise
        except Exception as error:  # of somebody else's store, which must not end a stream
            raise UnavailableError(f"lineage store failed: error={type(error).__name__}: {error}") from error

    def _wanted(self, records: LineageRecords) -> LineageRecords:
        without: dict[str, Any] = {}
        if not self.settings.has_tables:
            without |= {"source_tables": (), "sink_tables": ()}
        if not self.settings.has_snapshots:
            without |= {"source_snapshots": (), "sink_snapshots": (), "startups": ()}
        return replace(records, **without)

    def _enqueue(self, records: LineageRecords) -> None:
        """Note records in the warehouse; files sort by their time."""
        self._last_queued_ms = max(self._last_queued_ms + 1, self._clock.now_ms())
        path = f"{self.settings.queue_path}/{self._last_queued_ms:015d}-{self._names.uuid()}.json"
        self._io.replace(path, orjson.dumps(records.to_json()))
        self._looks_again_ms = 0

    def _read(self, path: str) -> LineageRecords | None:
        """Records of a file of the queue; None when somebody else has brought it in, or it is broken and stays."""
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


def lineage_of(catalog: OpenCatalog) -> Lineage | None:
    """The lineage of a catalog, in any process that can open the catalog; None when it keeps none.

    Raises:
        CorruptDataError: the file with the catalog's options is broken.
    """
    settings = settings_of(catalog)
    return None if settings is None else Lineage(settings)


def merged_lineage(records: Sequence[LineageRecords]) -> LineageRecords:
    """All records in their order, as one."""
    kinds = (field.name for field in fields(LineageRecords))
    return LineageRecords(
        **{kind: tuple(chain.from_iterable(getattr(each, kind) for each in records)) for kind in kinds}
    )
