"""The archive of a broker's classes is kept whole or not at all."""

from pathlib import Path

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
