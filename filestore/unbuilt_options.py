"""Options of Paimon's that have nothing to steer here: refused where they are set, and named where they are found."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from filestore.effective_options import default_text
from filestore.option_keys import OPTIONS
from filestore.options import TableOptions
from lsm.errors import InvalidInputError

_FLUSHES: Final = "a full write buffer becomes sorted files of level 0, which compaction merges: nothing is spilled"
_STREAMS: Final = "merges read a batch of every run: nothing is spilled"

UNBUILT: Final[Mapping[str, str]] = {
    "write-buffer-spillable": _FLUSHES,
    "write-buffer-spill.max-disk-size": _FLUSHES,
    "sort-spill-buffer-size": _STREAMS,
    "sort-spill-threshold": _STREAMS,
    "compaction.lease-timeout": "compactors take no lease: the later commit gives way",
    "tag.callbacks": "nothing is called after a tag; tag.create-success-file leaves a file for jobs that wait",
}
"""What happens instead, by key; the default of each may be given."""


def unbuilt(options: TableOptions) -> Sequence[str]:
    """Keys whose value has no effect."""
    return [key for key in UNBUILT if key in options.raw and options.value(key) != OPTIONS[key].default]


def check_built(options: TableOptions, keys: Collection[str]) -> None:
    """Refuse values of these keys that would have no effect. Raises: InvalidInputError with what happens instead."""
    for key in (each for each in unbuilt(options) if each in keys):
        usual = default_text(OPTIONS[key])
        raise InvalidInputError(
            f"option has no effect here, {UNBUILT[key]}: option={key} value={options.raw[key]} "
            f"fix='{'leave it out' if usual is None else f'leave it at {usual}'}'"
        )
