"""The formats of data files by name. A file's format is the last suffix of its name, not an option.

Source: Paimon DataFileMeta.fileFormat.
"""

from collections.abc import Mapping
from typing import Final

from filestore.format.avro import AVRO
from filestore.format.interface import FileFormat
from filestore.format.orc import ORC
from filestore.format.parquet import PARQUET
from lsm.errors import InvalidInputError

_FORMATS: Final[Mapping[str, FileFormat]] = {each.name: each for each in (PARQUET, ORC, AVRO)}


def file_format(name: str) -> FileFormat:
    """The format with this option name. Raises: InvalidInputError."""
    found = _FORMATS.get(name.strip().lower())
    if found is None:
        raise InvalidInputError(f"unknown file format: file.format={name} allowed={sorted(_FORMATS)}")
    return found


def format_of_file(file_name: str) -> FileFormat:
    """The format of a data file, by its name. Raises: InvalidInputError."""
    return file_format(file_name.rpartition(".")[2])
