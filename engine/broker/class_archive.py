"""The classes that a broker loads, kept as the JVM maps them (class data sharing): it starts in half the time.

The JVM writes the archive on its way out, so the first broker that is stopped in order makes it, for all that start
after it; `make jars` has one made at once. An archive fits one Java and one set of jars, which its name stands for;
where there is none, a broker starts without.
"""

import hashlib
import logging
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from engine.broker.jars import cache_dir, is_of_this_user

logger = logging.getLogger("fluvial.classes")

_QUIET: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")  # an archive that does not fit is no error


def archive_of(java: Path, jars: Sequence[Path]) -> Path:
    """Where the archive for a Java and its jars lies, in the user's cache, whether it is there or not."""
    resolved = java.resolve()
    about = [str(resolved), str(resolved.stat().st_mtime_ns), *map(str, jars)]
    return cache_dir() / "classes" / f"broker-{hashlib.sha256(chr(0).join(about).encode()).hexdigest()[:16]}.jsa"


def options_of(archive: Path) -> tuple[str, ...]:
    """The options with which a JVM maps an archive; none where it is missing, or another user can have made it."""
    return (f"-XX:SharedArchiveFile={archive}", *_QUIET) if may_be_mapped(archive) else ()


def may_be_mapped(archive: Path) -> bool:
    """Whether an archive is there, and no one else can have put classes into it: the JVM runs what it holds."""
    if not archive.exists():
        return False
    if not is_of_this_user(archive.absolute()):
        logger.warning(
            "an archive of classes is not used, as another user may have made it: path=%s "
            "fix='delete it; let FLUVIAL_CACHE be a directory that only you can write to'", archive,
        )  # fmt: skip
        return False
    return True


class NewArchive:
    """What the JVM of one broker writes when it ends, in the broker's directory until it is whole."""

    def __init__(self, data_dir: Path) -> None:
        """``data_dir``: of the broker; nothing is written before the first use."""
        self._part = data_dir / "classes.part"
        self._target = data_dir / "classes.target"

    def options(self, archive: Path) -> tuple[str, ...]:
        """The options for a JVM that starts; none where the archive is there already."""
        self.drop()
        if archive.exists():
            return ()
        self._target.write_text(str(archive), encoding="utf-8")
        return (f"-XX:ArchiveClassesAtExit={self._part}", *_QUIET)

    def keep(self) -> None:
        """Put the archive of a JVM that has ended by itself where the next ones find it."""
        if self._part.exists() and self._target.exists():
            archive = Path(self._target.read_text(encoding="utf-8"))
            archive.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._part.chmod(0o600)
            with tempfile.TemporaryDirectory(prefix=".new-", dir=archive.parent) as work:
                moved = Path(shutil.move(self._part, work))
                moved.replace(archive)
        self.drop()

    def drop(self) -> None:
        """Forget what a JVM wrote that was killed."""
        self._part.unlink(missing_ok=True)
        self._target.unlink(missing_ok=True)
