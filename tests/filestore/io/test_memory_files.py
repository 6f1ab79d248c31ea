"""The file systems in memory behave as the ones that they replace: one contract, run beside the local disk."""

import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from filestore.io.file_io import LinksFiles, LocalFileIO, MovesDirectories
from filestore.io.memory_files import MemoryFiles, MemoryObjects
from lsm.errors import FluvialError

NAMES = ("a", "b", "c")
ACTIONS = (
    "read_bytes", "exists", "is_directory", "list_names", "make_directory", "write_new", "create_exclusive", "replace",
    "sync", "delete", "delete_tree", "delete_empty_directory", "open_input", "open_output", "move_directory",
    "link_file",
)  # fmt: skip
WITH_BODY = ("write_new", "create_exclusive", "replace")
WITH_TARGET = ("move_directory", "link_file")


def answer(call: Callable[[], Any]) -> object:
    """What a call returns or raises; of an error its class only."""
    try:
        return call()
    except (FluvialError, OSError) as error:
        return type(error)


def done(files: Any, action: str, path: str, target: str, body: bytes) -> object:
    if action == "open_input":
        with files.open_input(path) as reader:
            return reader.read()
    if action == "open_output":
        with files.open_output(path) as writer:
            seen = files.exists(path)
            writer.write(body)
        return seen
    if action in WITH_BODY:
        return getattr(files, action)(path, body)
    return getattr(files, action)(*([path, target] if action in WITH_TARGET else [path]))


def state(files: Any, directory: str) -> object:
    if not files.is_directory(directory):
        return files.read_bytes(directory), files.size_bytes(directory)
    return {name: state(files, f"{directory}/{name}") for name in files.list_names(directory)}


def some_path(rng: random.Random) -> str:
    return "/".join(rng.choice(NAMES) for _ in range(rng.randint(1, 3)))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(4))
def test_files_in_memory_answer_as_a_local_disk(tmp_path: Path, seed: int) -> None:
    rng, disk, memory = random.Random(seed), LocalFileIO(), MemoryFiles()
    root = str(tmp_path / "root")
    disk.make_directory(root)
    memory.make_directory(root)
    answered = set()
    for _ in range(150):
        action, path, target = rng.choice(ACTIONS), f"{root}/{some_path(rng)}", f"{root}/{some_path(rng)}"
        if action == "move_directory" and (f"{target}/".startswith(f"{path}/") or not disk.is_directory(path)):
            continue  # it is for directories
        if action == "open_output" and disk.exists(path):
            continue  # it is for new files; a linked one would change under all its names
        body = str(rng.random()).encode()
        said = [answer(lambda: done(files, action, path, target, body)) for files in (disk, memory)]  # noqa: B023
        assert said[0] == said[1], (action, path, target)
        answered.add((action, str(said[0])))
        assert state(disk, root) == state(memory, root), action
    assert len(answered) > len(ACTIONS)


def test_an_object_store_in_memory_has_no_empty_directories_and_renames_none() -> None:
    store = MemoryObjects()
    store.make_directory("s3://bucket/t")
    store.write_new("s3://bucket/t/a/b", b"1")
    assert store.is_directory("s3://bucket/t/a")
    store.delete("s3://bucket/t/a/b")
    assert not store.exists("s3://bucket/t")
    assert store.list_names("s3://bucket") == []
    assert not isinstance(store, MovesDirectories | LinksFiles)
    assert isinstance(MemoryFiles(), MovesDirectories)
    assert isinstance(MemoryFiles(), LinksFiles)


def test_an_object_is_visible_when_it_is_closed_and_a_file_from_the_start() -> None:
    for files, is_there in ((MemoryObjects(), False), (MemoryFiles(), True)):
        with files.open_output("/t/x") as writer:
            writer.write(b"body")
            assert files.exists("/t/x") is is_there
        assert files.read_bytes("/t/x") == b"body"


def test_the_index_of_names_is_that_of_the_files_whatever_is_done() -> None:
    rng = random.Random(1)
    files = MemoryObjects()
    for _ in range(300):
        path = f"/w/{some_path(rng)}"
        if rng.random() < 0.4:
            files.delete_tree(path) if rng.random() < 0.2 else files.delete(path)
        elif not files.is_directory(path) and not any(up in files.files for up in _parents(path)):
            files.replace(path, b"")
        rebuilt = MemoryObjects(files.files).files.names
        assert {name: found for name, found in files.files.names.items() if name} == {
            name: found for name, found in rebuilt.items() if name
        }


def _parents(path: str) -> list[str]:
    parts = path.split("/")
    return ["/".join(parts[:end]) for end in range(1, len(parts))]


def test_a_copy_changes_alone_and_can_be_sent() -> None:
    files = MemoryFiles({"/t/a": b"1"})
    copy, sent = files.copied(), pickle.loads(pickle.dumps(files))
    copy.replace("/t/a", b"2")
    copy.delete_tree("/t")
    sent.write_new("/t/b", b"3")
    assert files.files == {"/t/a": b"1"}
    assert files.list_names("/t") == ["a"]
    assert sent.list_names("/t") == ["a", "b"]


def test_a_stamp_changes_with_every_content() -> None:
    files = MemoryFiles()
    files.replace("/t/a", b"1")
    first = files.stamp("/t/a")
    files.replace("/t/a", b"2")
    assert files.stamp("/t/a") != first
    files.delete("/t/a")
    with pytest.raises(FileNotFoundError):
        files.stamp("/t/a")


@pytest.mark.parametrize("kind", [LocalFileIO, MemoryFiles])
def test_a_directory_moves_into_one_that_is_there_and_no_parent_is_created(tmp_path: Path, kind: type) -> None:
    """What is moved is in the same tree as the directory: neither of a table that is gone is made again."""
    files, root = kind(), str(tmp_path / "t")
    assert not files.make_inside(f"{root}/bin")
    assert not files.exists(root)
    files.write_new(f"{root}/schema/schema-0", b"0")
    assert not files.move_into(f"{root}/schema", f"{root}/bin")
    assert files.list_names(root) == ["schema"]
    assert [files.make_inside(f"{root}/bin") for _ in range(2)] == [True, True]
    assert not files.move_into(f"{root}/other", f"{root}/bin")
    assert files.move_into(f"{root}/schema", f"{root}/bin")
    assert files.list_names(root) == ["bin"]
    assert files.read_bytes(f"{root}/bin/schema/schema-0") == b"0"
