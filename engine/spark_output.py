"""Where Spark's own messages go, so that a terminal shows ours only."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def spark_output(log_file: str) -> Iterator[None]:
    """Spark, its JVM and its workers inherit standard error: let them write to a file, and keep the terminal for us."""
    sys.stderr.flush()
    terminal = os.dup(2)
    log = os.open(log_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    saved = sys.stderr
    os.dup2(log, 2)
    sys.stderr = os.fdopen(os.dup(terminal), "w", buffering=1, encoding="utf-8")
    try:
        yield
    finally:
        sys.stderr.close()
        sys.stderr = saved
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(log)
