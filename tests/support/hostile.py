"""Files that a stranger wrote: names that lead out of a table, and a file system that sees who follows them."""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import fastavro
import orjson
from hypothesis import strategies as st

from filestore.io.file_io import FileIO

NAMES: Final = st.text(
    st.characters(exclude_characters="/\x7f", exclude_categories=("Cc", "Cs")), min_size=1, max_size=20
).filter(lambda text: text not in {".", ".."})
"""Names of files."""

VICTIM: Final = "/victim/v.parquet"
HOSTILE: Final = ("../../../../victim/v.parquet", VICTIM, "..", "a\0b")
"""None is the name of a file; some lead from anywhere in a warehouse to the victim."""
_IN_AVRO: Final = frozenset({"_FILE_NAME", "_EXTRA_FILES", "_EXTERNAL_PATH"})


def edits(body: bytes, values: Sequence[str] = HOSTILE) -> Iterator[tuple[str, bytes]]:
    """Each text of a file of metadata replaced by each of some values in turn: what was edited, and the new contents.

    Of an Avro file these are the names in its first record; of JSON all texts, at any depth, and a line of plain text.
    """
    if body.startswith(b"Obj\x01"):
        yield from _avro_edits(body, values)
        return
    try:
        whole = orjson.loads(body)
    except ValueError:
        for value in values:
            yield f"text={value!r}", value.encode()
        return
    for place, change in _places(whole):
        for value in values:
            yield f"{place}={value!r}", orjson.dumps(change(value))


def _avro_edits(body: bytes, values: Sequence[str]) -> Iterator[tuple[str, bytes]]:
    reader = fastavro.reader(BytesIO(body))
    first, *others = [dict(record) for record in reader] or [{}]
    for place, change in _places(first):
        name = place.rpartition(".")[2].partition("[")[0]
        if name in _IN_AVRO:
            for value in values:
                out = BytesIO()
                fastavro.writer(out, reader.writer_schema, [change(value), *others])
                yield f"{place}={value!r}", out.getvalue()


def odd_bodies(body: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Contents that no writer makes, in an order of their own: what it is, and the file with it.

    Files that are no such file at all, with a value of another type or size at each place of JSON, and with bits and
    counts that are others.
    """
    found = [(f"{each[:12]!r}", each) for each in ODD_BODIES]
    if body[:1] in {b"{", b"["}:
        for place, change in all_places(orjson.loads(body)):
            found += [(f"{place}={value!r:.20}", json.dumps(change(value)).encode()) for value in ODD_VALUES]
    else:
        for _ in range(80):
            at = rng.randrange(len(body))
            flipped, counted = bytearray(body), bytearray(body)
            flipped[at] ^= 1 << rng.randrange(8)
            counted[at : at + 1] = b"\xff" * 8 + b"\x7f"
            found += [(f"cut {at}", body[:at]), (f"bit {at}", bytes(flipped)), (f"count {at}", bytes(counted))]
    rng.shuffle(found)
    yield from found


def all_places(value: Any, path: str = "") -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Every value in JSON, at any depth: the path, and the whole with another value there."""
    yield path, lambda new: new
    items: Sequence[tuple[Any, Any]] = (
        [*value.items()] if isinstance(value, dict) else [*enumerate(value)][:2] if isinstance(value, list) else []
    )
    for key, inner in items:
        for place, change in all_places(inner, f"{path}.{key}"):

            def whole(new: Any, key: Any = key, change: Callable[[Any], Any] = change) -> Any:
                copy = value.copy()
                copy[key] = change(new)
                return copy

            yield place, whole


def _places(value: Any, path: str = "") -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """The texts, and the missing values and empty lists of names, in a JSON value: the path, and the value with it."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            for place, change in _places(inner, f"{path}.{key}"):
                yield place, lambda new, key=key, change=change: {**value, key: change(new)}
    elif isinstance(value, list) and value:
        for index, inner in enumerate(value):
            for place, change in _places(inner, f"{path}[{index}]"):
                yield (
                    place,
                    lambda new, index=index, change=change: [*value[:index], change(new), *value[index + 1 :]],
                )
    elif path.rpartition(".")[2] in _IN_AVRO and not value:
        yield path, lambda new: [new] if value == [] else new
    elif isinstance(value, str):
        yield path, lambda new: new


ODD_VALUES: Final = (
    *(None, -1, 10**18, 2**63, 10**30, 1.5, 1e308, True, "", "x", [], {}, [1], {"a": 1}, [[]], "9" * 400, "x" * 10**5),
)
ODD_BODIES: Final = (
    *(
        b"",
        b"{",
        b"null",
        b"5",
        b'"x"',
        b"[]",
        b"{}",
        b"[" * 10**5,
        b'{"a":' * 10**5,
        b"1e999",
        b"\xff\xfe",
        b" " * 10**6,
    ),
    b"Obj\x01" + b"\xff" * 9 + b"\x01",
)


class WatchedFileIO:
    """A file system that notes each path outside of some directories that it is asked to open or delete."""

    def __init__(self, inner: FileIO, inside: Sequence[str]) -> None:
        self._inner = inner
        self._inside = tuple(f"{directory}/" for directory in inside)
        self.outside: list[str] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if not callable(found):
            return found

        def call(path: str, *arguments: Any, **named: Any) -> Any:
            if not f"{_resolved(path)}/".startswith(self._inside):
                self.outside.append(f"{name} {path}")
            return found(path, *arguments, **named)

        return call


def _resolved(path: str) -> str:
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in {"", "."}:
            parts.append(part)
    return "/" + "/".join(parts)
