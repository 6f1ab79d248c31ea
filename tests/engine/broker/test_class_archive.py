"""The archive of a broker's classes is kept whole or not at all."""

import os
from pathlib import Path

import pytest

from engine.broker.class_archive import NewArchive, archive_of, options_of


def test_what_a_jvm_wrote_is_kept_for_the_next_and_only_once(tmp_path: Path) -> None:
    archive, data = tmp_path / "cache" / "a.jsa", tmp_path / "broker"
    data.mkdir()
    assert options_of(archive) == ()
    [written, *_] = NewArchive(data).options(archive)
    Path(written.partition("=")[2]).write_text("classes")  # as the JVM does
    NewArchive(data).keep()
    assert archive.read_text() == "classes"
    assert options_of(archive)[0] == f"-XX:SharedArchiveFile={archive}"
    assert NewArchive(data).options(archive) == ()
    assert [*data.iterdir()] == []
    assert [*archive.parent.iterdir()] == [archive]


def test_what_a_killed_jvm_wrote_is_dropped(tmp_path: Path) -> None:
    archive = tmp_path / "a.jsa"
    [written, *_] = NewArchive(tmp_path).options(archive)
    Path(written.partition("=")[2]).write_text("half")
    NewArchive(tmp_path).drop()
    NewArchive(tmp_path).keep()
    assert [*tmp_path.iterdir()] == []


def test_a_jvm_that_writes_nothing_leaves_nothing(tmp_path: Path) -> None:
    NewArchive(tmp_path).options(tmp_path / "a.jsa")
    NewArchive(tmp_path).keep()
    assert [*tmp_path.iterdir()] == []


def test_another_java_or_other_jars_have_an_archive_of_their_own(tmp_path: Path) -> None:
    java, other = tmp_path / "java", tmp_path / "other"
    java.touch()
    other.touch()
    jars = [tmp_path / "one.jar", tmp_path / "two.jar"]
    names = {archive_of(java, jars), archive_of(other, jars), archive_of(java, jars[:1])}
    assert len(names) == 3
    (tmp_path / "link").symlink_to(java)
    assert archive_of(tmp_path / "link", jars) == archive_of(java, jars)


@pytest.mark.parametrize("fault", ["file", "directory", "above", "link", "owner"])
def test_an_archive_that_another_user_may_have_made_is_not_mapped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """The JVM runs what is in it: before, any file at its place was mapped."""
    archive = tmp_path / "cache" / "classes" / "a.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_text("classes")
    assert options_of(archive) != ()
    match fault:
        case "file":
            archive.chmod(0o666)
        case "directory":
            archive.parent.chmod(0o777)
        case "above":
            archive.parent.parent.chmod(0o777)
        case "link":
            archive.rename(tmp_path / "elsewhere.jsa")
            archive.symlink_to(tmp_path / "elsewhere.jsa")
        case _ if os.getuid() == 0:
            os.chown(archive, 12345, 12345)
        case _:  # only root gives files away: this process is another user instead
            monkeypatch.setattr("os.getuid", lambda: archive.stat().st_uid + 1)
    with caplog.at_level("WARNING", logger="fluvial.classes"):
        assert options_of(archive) == ()
    assert f"path={archive}" in caplog.text


def test_a_directory_that_all_may_write_to_is_safe_if_each_keeps_his_own(tmp_path: Path) -> None:
    """As the temporary directory; and so is a group that is a user's alone."""
    archive = tmp_path / "tmp" / "classes" / "a.jsa"
    archive.parent.mkdir(parents=True)
    archive.write_text("classes")
    archive.parent.parent.chmod(0o1777)
    if os.getuid() == os.getgid():
        archive.chmod(0o664)
    assert options_of(archive) != ()
