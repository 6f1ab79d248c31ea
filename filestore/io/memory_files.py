"""File systems in memory: one that behaves like a local disk, one that behaves like an object store.

For simulations and tests. A directory knows the names in it, so that a listing costs what it returns, and a copy of a
file system shares the bytes of its files. The contract test of the room runs ``MemoryFiles`` beside ``LocalFileIO``.
Not for use by several threads at once.
"""

import io
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import pyarrow as pa

from filestore.io.disk import making
from filestore.io.file_io import Clock
from lsm.errors import ConflictError, UnavailableError


class FileTree(dict[str, bytes]):
    """Contents by path, with an index of the names in each directory."""

    def __init__(self, files: Mapping[str, bytes], *, keeps_directories: bool) -> None:
        """``keeps_directories``: a directory stays when its last file was deleted."""
        super().__init__(files)
        self.keeps_directories: Final = keeps_directories
        self.names: dict[str, set[str]] = {}
        for path in files:
            self._enter(path)

    def __setitem__(self, path: str, body: bytes) -> None:
        if path not in self:
            self._enter(path)
        super().__setitem__(path, body)

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        directory, _, name = path.rpartition("/")
        self._leave(directory, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """For pickle, which would set items before the index is there."""
        return _rebuilt, (dict(self), {name: set(names) for name, names in self.names.items()}, self.keeps_directories)

    def setdefault(self, path: str, body: bytes = b"") -> bytes:
        """The contents of a file, which is added with these if it is missing."""
        if path not in self:
            self[path] = body
        return self[path]

    def pop(self, path: str, *default: Any) -> Any:
        """Remove a file and return its contents, as a dictionary does."""
        if path not in self and default:
            return default[0]
        body = self[path]
        del self[path]
        return body

    def clear(self) -> None:
        """Remove every file."""
        for path in [*self]:
            del self[path]

    def add_directory(self, path: str) -> None:
        """Create a directory and its parents."""
        if path not in self.names:
            self.names[path] = set()
            self._enter(path)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        del self.names[path]
        directory, _, name = path.rpartition("/")
        self._leave(directory, name)

    def below(self, directory: str) -> list[str]:
        """Paths of all files below a directory, sorted by directory."""
        found = []
        for name in sorted(self.names.get(directory, ())):
            path = f"{directory}/{name}"
            found += [path] if path in self else self.below(path)
        return found

    def copied(self) -> "FileTree":
        """A tree of its own with the same files."""
        return _rebuilt(self, {name: set(names) for name, names in self.names.items()}, self.keeps_directories)

    def _enter(self, path: str) -> None:
        while path:
            path, _, name = path.rpartition("/")
            known = self.names.get(path)
            if known is not None:
                known.add(name)
                return
            self.names[path] = {name}

    def _leave(self, directory: str, name: str) -> None:
        self.names[directory].discard(name)
        while directory and not self.names[directory] and not self.keeps_directories:
            del self.names[directory]
            directory, _, name = directory.rpartition("/")
            self.names[directory].discard(name)


def _rebuilt(files: Mapping[str, bytes], names: dict[str, set[str]], keeps_directories: bool) -> FileTree:
    tree = FileTree({}, keeps_directories=keeps_directories)
    tree.update(files)  # the index is complete, so this does not build it again
    tree.names = names
    return tree


class MemoryObjects:
    """Files as an object store has them: a directory exists as long as a file is below it, and none can be renamed."""

    _KEEPS_DIRECTORIES = False

    def __init__(self, files: Mapping[str, bytes] | None = None, *, clock: Clock | None = None) -> None:
        """``files`` are copied; ``clock`` dates changes, None: all are of the epoch."""
        self.files = FileTree(files or {}, keeps_directories=self._KEEPS_DIRECTORIES)
        self._clock = clock
        self._version = 0
        self._changed: dict[str, tuple[int, int]] = {}  # (time_ms, version) by path

    def copied(self, *, clock: Clock | None = None) -> Self:
        """A file system of its own with the same files."""
        copy = type(self)(clock=clock)
        copy.files = self.files.copied()
        copy._changed = dict(self._changed)
        copy._version = self._version
        return copy

    def read_bytes(self, path: str) -> bytes:
        """The contents of a file. Raises: FileNotFoundError."""
        body = self.files.get(path)
        if body is None:
            raise self._missing("read", path)
        return body

    def exists(self, path: str) -> bool:
        """Whether a file or directory of this name exists."""
        return path in self.files or path in self.files.names

    def is_directory(self, path: str) -> bool:
        """Whether the path exists and is a directory."""
        return path in self.files.names

    def is_link(self, path: str) -> bool:
        """Always False: there are none."""
        return False

    def size_bytes(self, path: str) -> int:
        """Size of a file. Raises: FileNotFoundError."""
        return len(self.read_bytes(path))

    def modified_ms(self, path: str) -> int:
        """Epoch milliseconds of the last change. Raises: FileNotFoundError."""
        self.read_bytes(path)
        return self._changed.get(path, (0, 0))[0]

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """None, as in an object store."""
        self.read_bytes(path)
        return None

    def list_names(self, directory: str) -> list[str]:
        """Names of the entries, sorted; empty when there is no such directory."""
        return sorted(self.files.names.get(directory, ()))

    def make_directory(self, path: str) -> None:
        """No effect: there is none without a file."""

    def write_new(self, path: str, body: bytes) -> None:
        """Write a file with an unused name. Raises: ConflictError when the name is taken."""
        if self.exists(path):
            raise ConflictError(f"file exists already, nothing was written: path={path}")
        self._put(path, body)

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Create a file under an unused name; False when the name is taken."""
        if self.exists(path):
            return False
        self._put(path, body)
        return True

    def replace(self, path: str, body: bytes) -> None:
        """Overwrite a file."""
        self._put(path, body)

    def sync(self, path: str) -> None:
        """Check that the file exists."""
        with making("sync", path):
            self.read_bytes(path)

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        if path in self.files:
            del self.files[path]
            self._changed.pop(path, None)

    def delete_tree(self, path: str) -> None:
        """Delete everything below a path."""
        for each in self.files.below(path):
            self.delete(each)

    def delete_empty_directory(self, path: str) -> bool:
        """False: there is none without a file."""
        return False

    def open_input(self, path: str) -> pa.NativeFile:
        """Random-access reader. Raises: FileNotFoundError."""
        return pa.BufferReader(self.read_bytes(path))

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a new file, which becomes visible on close."""
        return pa.PythonFile(OutputBuffer(lambda body: self._put(path, body)), mode="w")

    def _put(self, path: str, body: bytes) -> None:
        self.files[path] = bytes(body)
        self._version += 1
        self._changed[path] = (0 if self._clock is None else self._clock.now_ms(), self._version)

    def _missing(self, action: str, path: str) -> Exception:
        return FileNotFoundError(2, f"no such file, action={action}", path)


class MemoryFiles(MemoryObjects):
    """Files as a local disk has them: directories exist by themselves and can be renamed."""

    _KEEPS_DIRECTORIES = True

    def stamp(self, path: str) -> tuple[int, ...] | None:
        """A number that no two contents share, and the size."""
        return self._changed.get(path, (0, 0))[1], self.size_bytes(path)

    def list_names(self, directory: str) -> list[str]:
        """Names of the entries, sorted; empty when there is no such directory."""
        self._check_parents("list", directory)
        if directory in self.files:
            raise self._refused("list", directory)
        return super().list_names(directory)

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents, if missing."""
        self._check_parents("make", path)
        if path in self.files:
            raise self._refused("make", path)
        self.files.add_directory(path)

    def write_new(self, path: str, body: bytes) -> None:
        """Write a file with an unused name. Raises: ConflictError when the name is taken."""
        self._check_parents("write", path)
        super().write_new(path, body)

    def create_exclusive(self, path: str, body: bytes) -> bool:
        """Create a file under an unused name; False when the name is taken."""
        self._check_parents("write", path)
        return super().create_exclusive(path, body)

    def replace(self, path: str, body: bytes) -> None:
        """Overwrite a file."""
        self._check_parents("replace", path)
        if self.is_directory(path):
            raise self._refused("replace", path)
        super().replace(path, body)

    def link_file(self, source: str, target: str) -> bool:
        """Create a second name of a file; False for a directory."""
        self.make_directory(target.rpartition("/")[0])
        if not self.exists(source):
            raise self._missing("link", source)
        if self.exists(target):
            raise self._refused("link", target)
        if self.is_directory(source):
            return False
        self._put(target, self.read_bytes(source))
        return True

    def delete(self, path: str) -> None:
        """Delete a file, if it exists."""
        self._check_parents("delete", path)
        if self.is_directory(path):
            raise self._refused("delete", path)
        super().delete(path)

    def delete_tree(self, path: str) -> None:
        """Delete a directory tree, if it exists."""
        self._check_parents("delete", path)
        if path in self.files:
            raise self._refused("delete", path)
        super().delete_tree(path)
        for each in sorted(self._directories(path), key=len, reverse=True):
            self.files.remove_directory(each)

    def delete_empty_directory(self, path: str) -> bool:
        """Delete an empty directory; False when it is missing or not empty."""
        if self.files.names.get(path, {""}):
            return False
        self.files.remove_directory(path)
        return True

    def move_directory(self, source: str, target: str) -> None:
        """Rename a directory. Raises: ConflictError when the target exists, FileNotFoundError."""
        try:
            self.make_directory(target.rpartition("/")[0])
        except UnavailableError as error:
            raise ConflictError(f"directory exists already: path={target}") from error
        if not self.exists(source):
            raise self._missing("move", source)
        if target in self.files or self.files.names.get(target):
            raise ConflictError(f"directory exists already: path={target}")
        moved = {path: (self.files[path], self._changed.get(path, (0, 0))) for path in self.files.below(source)}
        directories = self._directories(source)
        self.delete_tree(source)
        for each in directories:
            self.files.add_directory(f"{target}{each[len(source) :]}")
        for path, (body, changed) in moved.items():
            renamed = f"{target}{path[len(source) :]}"
            self.files[renamed] = body
            self._changed[renamed] = changed

    def make_inside(self, path: str) -> bool:
        """Create a directory; False when its parent is missing."""
        if not self.is_directory(path.rpartition("/")[0]):
            return False
        self.make_directory(path)
        return True

    def move_into(self, source: str, directory: str) -> bool:
        """Rename a file or directory into an empty one, under its own name; False when one of the two is missing."""
        if not self.exists(source) or not self.is_directory(directory):
            return False
        target = f"{directory}/{source.rpartition('/')[2]}"
        if self.is_directory(source):
            self.move_directory(source, target)
        else:
            body = self.files[source]
            self.delete(source)
            self._put(target, body)
        return True

    def open_output(self, path: str) -> pa.NativeFile:
        """Writer of a new file, which exists from now on."""
        self._check_parents("open", path)
        if self.is_directory(path):
            raise self._refused("open", path)
        self._put(path, b"")
        return super().open_output(path)

    def _directories(self, path: str) -> list[str]:
        """A directory and those below it, parents first; [] when there is none."""
        if path not in self.files.names:
            return []
        inner = (f"{path}/{name}" for name in sorted(self.files.names[path]))
        return [path, *(each for child in inner for each in self._directories(child))]

    def _check_parents(self, action: str, path: str) -> None:
        parent = path.rpartition("/")[0]
        while parent and parent not in self.files.names:
            if parent in self.files:
                raise self._refused(action, path)
            parent = parent.rpartition("/")[0]

    def _missing(self, action: str, path: str) -> Exception:
        """The error of a disk where there is no such file: another one where a file is in the way."""
        self._check_parents(action, path)
        return self._refused(action, path) if self.is_directory(path) else super()._missing(action, path)

    def _refused(self, action: str, path: str) -> UnavailableError:
        return UnavailableError(f"file system error: action={action} path={path} error=is a file or a directory")


class OutputBuffer(io.BytesIO):
    """Bytes of a file that appears with all of them when it is closed; one that is not closed never appears."""

    def __init__(self, done: Callable[[bytes], None]) -> None:
        """``done``: called once, with the contents."""
        super().__init__()
        self._done = done

    def close(self) -> None:
        """Hand over the contents, at the first call."""
        if not self.closed:
            body = self.getvalue()
            super().close()
            self._done(body)

    def __del__(self) -> None:
        """Nothing: garbage is collected at any moment by any thread."""
