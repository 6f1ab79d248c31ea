"""Versions of metadata files: those of a newer Fluvial or Paimon are refused, since their fields may mean more."""

from lsm.errors import CorruptDataError


def refuse_newer(version: int, newest: int, *, what: str, source: str) -> None:
    """Refuse a file of a version that is not known here.

    Args:
        version: of the file.
        newest: that is known; all older ones are read.
        what: the file is.
        source: its path.

    Raises:
        CorruptDataError: the version is newer. Nothing is damaged: a newer Fluvial reads it.
    """
    if not 0 < version <= newest:
        raise CorruptDataError(
            f"{what} of an unknown version, written by a newer Fluvial or Paimon: file={source} version={version} "
            f"known_version={newest} fix=upgrade Fluvial"
        )
