"""A look at a table that a pipeline reads, every few seconds: what is committed there and not delivered yet."""

import logging
import time
from collections.abc import Callable, Mapping

from engine.catalog import Catalog
from engine.deploy.config.job_config import JobConfig
from engine.deploy.config.pipeline_config import PipelineConfig
from engine.deploy.pipeline.sources import WAREHOUSE, source_options, source_table
from engine.request.read_keys import STREAM_KEYS
from engine.spark.data_source import FluvialDataSource
from engine.spark.read_options import ReadOptions, stream_options
from engine.stream.lag import Lag, LagProbe
from engine.stream.position.position import Position
from engine.table import Table
from lsm.errors import FluvialError

logger = logging.getLogger("fluvial.job")


class SourceTableWatch:
    """The table of one pipeline."""

    def __init__(self, pipeline: str, probe: Callable[[], LagProbe], delivered: Callable[[], Position | None]) -> None:
        """Look at nothing yet.

        Args:
            pipeline: its name.
            probe: opens the table.
            delivered: the end of the last finished batch; None: it has none yet.
        """
        self.name = f"pipeline={pipeline}"
        self.lags: Mapping[str, Lag] = {}  # by pipeline, as of the last look that was answered
        self._pipeline, self._open, self._delivered = pipeline, probe, delivered
        self._probe: LagProbe | None = None
        self._lost_s: float | None = None  # when it could not be looked at first, on ``time.monotonic``

    @property
    def unreachable_s(self) -> float | None:
        """Seconds since the table could be looked at last; None: it can."""
        return None if self._lost_s is None else time.monotonic() - self._lost_s

    def look(self) -> None:
        """Ask once."""
        here = self._delivered()
        if here is None:
            return
        try:
            self._probe = self._probe or self._open()
            self.lags = {self._pipeline: self._probe.behind(here)}
        except FluvialError as error:
            self._probe = None  # it may have another schema or log by now
            if self._lost_s is None:
                self._lost_s = time.monotonic()
                logger.warning("the lag cannot be found out: %s reason=%s", self.name, error)
        else:
            self._lost_s = None


def tables_read(config: JobConfig, catalog: Catalog) -> list[Table]:
    """The tables of the job's catalog that pipelines read, as far as they are there."""
    names = [
        source_table(config, each)
        for each in config.pipelines
        if source_options(config, each).get(WAREHOUSE) == config.warehouse
    ]
    return [
        catalog.table(each) for each in dict.fromkeys(names) if each and "$" not in each and catalog.table_exists(each)
    ]


def table_watch(
    config: JobConfig, pipeline: PipelineConfig, delivered: Callable[[], Position | None]
) -> SourceTableWatch | None:
    """The watch of a pipeline that reads a table; None: it reads something else."""
    if source_table(config, pipeline) is None:
        return None

    def probe() -> LagProbe:
        options = source_options(config, pipeline)
        read = ReadOptions.parse(options, STREAM_KEYS)
        return LagProbe(stream_options(read, FluvialDataSource(options).schema()))

    return SourceTableWatch(pipeline.name, probe, delivered)
