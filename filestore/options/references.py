"""References in place of secrets: ``${NAME}`` of the environment, or ``${file:/run/secrets/kafka}``.

They are read where a user opens a catalog, a source or a writer, never out of what a table stores: a table of
strangers that names a file and brokers of its own would be given that file's text.
"""

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from lsm.errors import InvalidInputError
from lsm.secret_names import is_secret_name

_REFERENCE: Final = re.compile(r"\$\{(?:file:(?P<path>[^}]+)|(?P<name>[A-Za-z_][A-Za-z0-9_]*))\}")
_MOST_BYTES: Final = 1 << 20


def secret_of_file(path: str) -> str:
    """The text of a file without its last line break. Raises: as ``text_of_file``."""
    return text_of_file(Path(path)).removesuffix("\n").removesuffix("\r")


def text_of_file(file: Path) -> str:
    """The text of a file that options name. Raises: OSError, UnicodeDecodeError: it has none."""
    found = file.stat()
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "it is not a regular file")  # a pipe or a device would never end
    if found.st_size > _MOST_BYTES:
        raise OSError(0, f"it has {found.st_size} bytes, and a file of options or secrets has at most {_MOST_BYTES}")
    return file.read_text(encoding="utf-8")


def with_secrets(options: Mapping[str, str], *, is_secret: Callable[[str], bool] = is_secret_name) -> dict[str, str]:
    """The options with what references stand for. Only a whole value is one, and only that of a secret.

    Args:
        options: as a user gave them.
        is_secret: whether the value of a key is never shown.

    Raises:
        InvalidInputError: there is no such variable, or the file cannot be read.
    """
    return {
        key: _resolved(key, value) if value.startswith("${") and is_secret(key) else value
        for key, value in options.items()
    }


def _resolved(key: str, value: str) -> str:
    reference = _REFERENCE.fullmatch(value)
    if reference is None:
        return value
    name, path = reference["name"], reference["path"]
    if name is not None:
        found = os.environ.get(name)
        if not found:
            raise InvalidInputError(
                f"environment variable of a secret is not set: option={key} name={name} fix=export it"
            )
        return found
    try:
        return secret_of_file(path)
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InvalidInputError(
            f"file of a secret cannot be read: option={key} path={path} reason={reason} "
            "fix=create it, or correct the path"
        ) from error
