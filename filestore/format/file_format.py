"""The formats of data files by name. A file's format is the last suffix of its name, not an option.

Source: Paimon DataFileMeta.fileFormat.
"""

from filestore.format.interface import FileFormat
from filestore.format.parquet import PARQUET
from lsm.errors import InvalidInputError


def file_format(name: str) -> FileFormat:
    """The format with this option name. Raises: InvalidInputError."""
    match name.strip().lower():
        case "parquet":
            return PARQUET
        case "orc":
            from filestore.format.orc import ORC

            return ORC
        case "avro":
            from filestore.format.avro import AVRO

            return AVRO
        case _:
            raise InvalidInputError(f"unknown file format: file.format={name} allowed=['avro', 'orc', 'parquet']")


def format_of_file(file_name: str) -> FileFormat:
    """The format of a data file, by its name. Raises: InvalidInputError."""
    return file_format(file_name.rpartition(".")[2])
