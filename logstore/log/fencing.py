"""All buckets of a log fenced at once: no writer of an earlier run can commit afterwards."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from logstore.kafka.clients import OPERATION_TIMEOUT_S
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.log.marker import LogTail

_FENCING_THREADS: Final = 16


def fence_all(targets: Iterable[LogTarget], *, timeout_s: float = OPERATION_TIMEOUT_S) -> dict[int, LogTail]:
    """Fence every bucket and return the end of its log; called by the driver before the first batch of a run.

    Afterwards no writer of an earlier run can commit. Buckets are fenced in parallel.

    Raises:
        FluvialError: see `BucketLogWriter.fence`; for the first bucket that fails. Buckets after it are fenced too.
    """

    def tail(target: LogTarget) -> LogTail:
        with BucketLogWriter(target, timeout_s=timeout_s) as writer:
            writer.fence()
            return writer.tail

    wanted = [*targets]
    if not all(target.properties.environment.max_threads for target in wanted):
        return {found.bucket: found for found in map(tail, wanted)}
    with ThreadPoolExecutor(max_workers=_FENCING_THREADS, thread_name_prefix="fluvial-fence") as threads:
        return {found.bucket: found for found in threads.map(tail, wanted)}
