"""Where a table wants its new data files, by its options: in its own directory, or at external places.

Source: Paimon CoreOptions.ExternalPathStrategy.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from filestore.options.table.groups import TableValues
from lsm.errors import InvalidInputError

_PLACES: Final = "data-file.external-paths"
_WEIGHTS: Final = f"{_PLACES}.weights"
_FILE_SYSTEM: Final = f"{_PLACES}.specific-fs"


@dataclass(frozen=True, slots=True)
class ExternalPlaces:
    """The roots of new data files outside of a table's directory, and how one is chosen for a file."""

    roots: tuple[str, ...]  # URIs without a slash at the end, at least one
    weights: tuple[int, ...] = ()  # one for each root: what share of files it gets; none: they take turns
    is_hashed: bool = False  # with directories between by a hash of the file's name


def external_places(options: TableValues) -> ExternalPlaces | None:
    """The external places of new data files; None: they go into the table's directory.

    Raises: InvalidInputError naming the option and value: a root without a scheme or with odd parts, no root of the
        file system that is asked for, or another number of weights than of roots.
    """
    strategy, text = options.data_file_external_strategy, options.data_file_external_paths
    if strategy == "none" or text is None:
        return None
    roots = tuple(_root(each.strip()) for each in text.rstrip(",").split(","))
    if strategy == "specific-fs":
        wanted = (options.data_file_external_file_system or "").lower()
        roots = tuple(each for each in roots if each.partition(":")[0].lower() == wanted)
        if not roots:
            raise InvalidInputError(
                f"no external path is of the file system: option={_FILE_SYSTEM} value={wanted or None} "
                f"{_PLACES}={text} fix='give the scheme of one, as s3 or file'"
            )
    weights = _weights(options.data_file_external_weights, roots) if strategy == "weight-robin" else ()
    return ExternalPlaces(roots, weights, is_hashed=strategy == "entropy-inject")


def places_rules(options: TableValues) -> Iterable[tuple[bool, str]]:
    """Refuse external places that no writer could use. Raises: InvalidInputError."""
    external_places(options)
    return ()


def _root(text: str) -> str:
    scheme, colon, place = text.partition(":")
    parts = place.strip("/").split("/")
    if not colon or "/" in scheme or not scheme or any(part in {"", ".", ".."} or not part.isprintable()
                                                       for part in parts):  # fmt: skip
        raise InvalidInputError(
            f"external path is not the address of a directory: option={_PLACES} value={text!r} "
            "fix='write it as file:///fast/orders or s3://bucket/orders, with commas between several'"
        )
    return text.rstrip("/")


def _weights(text: str | None, roots: Sequence[str]) -> tuple[int, ...]:
    """As Paimon has it, places take turns where there is one, or no weights."""
    if text is None or len(roots) < 2:
        return ()
    parts = [each.strip() for each in text.rstrip(",").split(",")]
    if len(parts) != len(roots) or not all(each.isascii() and each.isdecimal() and int(each) for each in parts):
        raise InvalidInputError(
            f"each external path needs a weight of 1 or more: option={_WEIGHTS} value={text!r} paths={len(roots)} "
            f"fix='{_WEIGHTS}={','.join('1' for _ in roots)}'"
        )
    return tuple(map(int, parts))
