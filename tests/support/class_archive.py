"""The classes that Spark loads, kept as the JVM maps them (class data sharing): a session starts in half the time.

    python -m tests.support.class_archive

Tests start Spark over a hundred times, in processes that they kill. `make test` makes the archive once for each
environment, as users get theirs; Spark starts without it where it is missing or does not fit, only slower.
"""

import os
import sys
from pathlib import Path
from typing import Final

from engine.spark.class_archive import SUBMIT_OPTIONS, SWITCH, make_archive, options_for

# An archive fits one set of jars at one place: that of the environment, so it lies there.
ARCHIVE: Final = Path(sys.prefix) / "spark-classes.jsa"
# Spark runs for seconds here, over and over: the best compiler and a parallel collector of garbage cost more than they
# give (a fifth of the time of a job that is killed and started again).
QUICK: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
# Of classes that no archive holds: those of another release, of Spark Connect, and of the tests' other JVMs.
UNVERIFIED: Final = ("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote")


def use() -> None:
    """Let the sessions of this process, and of those that it starts, use the archive. A value from outside stays."""
    shared = (options_for(ARCHIVE),) if ARCHIVE.exists() else ()
    os.environ.setdefault(SUBMIT_OPTIONS, " ".join((*QUICK, *UNVERIFIED, *shared)))
    os.environ.setdefault(SWITCH, "false")  # no test has the user's archive made


def make() -> None:
    """Run what jobs run, once, and have the JVM keep the classes that it loaded."""
    from engine.spark.class_training import starts_with, train

    ARCHIVE.unlink(missing_ok=True)
    ARCHIVE.with_suffix(".lock").unlink(missing_ok=True)
    if not make_archive(ARCHIVE, lambda options: train(" ".join((*QUICK, options))), starts_with):
        print("this JVM keeps no archive of classes: tests run without, only slower", file=sys.stderr)


if __name__ == "__main__":
    make()
