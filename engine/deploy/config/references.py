"""References in values of a job file: to the environment, or to a file with a secret.

``${NAME}`` and ``${NAME:-default}`` as in a shell, ``${file:/run/secrets/kafka}`` for the content of a file without its
last line break, and ``$${`` for a literal ``${``. Resolved values are text, not parsed as YAML.
"""

import re
from collections.abc import Mapping
from typing import Final

from engine.deploy.config.config_file import ConfigNode, SourceLine
from filestore.options.references import secret_of_file
from lsm.errors import InvalidInputError

_REFERENCE: Final = re.compile(r"\$(\$?)\{(?:file:([^}]+)|([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?)\}")


class References:
    """Resolves references, and remembers the secret values, and those that are not here if that is allowed."""

    def __init__(self, environment: Mapping[str, str], *, may_lack: bool = False) -> None:
        self._environment = environment
        self._may_lack = may_lack
        self.secrets: set[str] = set()
        self.absent: list[str] = []  # references, as written

    def resolved(self, node: ConfigNode) -> ConfigNode:
        """A tree with all references resolved.

        Raises:
            InvalidInputError: a variable is not set, or a file cannot be read; the message has the location.
        """
        content = node.content
        if isinstance(content, Mapping):
            return ConfigNode(content={key: self.resolved(each) for key, each in content.items()}, place=node.place)
        if isinstance(content, tuple):
            return ConfigNode(content=tuple(self.resolved(each) for each in content), place=node.place)
        return node if content is None else ConfigNode(content=self.text(content, node.place), place=node.place)

    def text(self, text: str, place: SourceLine) -> str:
        """One text with its references resolved. Raises: the errors of ``resolved``."""

        def value_of(match: re.Match[str]) -> str:
            escape, path, name, default = match.groups()
            if escape:
                return match.group(0)[1:]
            return self._variable(name, default, place) if path is None else self._secret(path, place)

        return _REFERENCE.sub(value_of, text)

    def _variable(self, name: str, default: str | None, place: SourceLine) -> str:
        found = self._environment.get(name)
        if not found and default is not None:
            return default
        if found is None and self._may_lack:
            return self._stand_in(f"${{{name}}}")
        if found is None:
            raise InvalidInputError(
                f"environment variable is not set: name={name} {place} fix=export it or write ${{{name}:-default}}"
            )
        return found

    def _secret(self, path: str, place: SourceLine) -> str:
        try:
            text = secret_of_file(path)
        except (OSError, UnicodeDecodeError) as error:
            if self._may_lack and isinstance(error, OSError):
                return self._stand_in(f"${{file:{path}}}")
            reason = getattr(error, "strerror", None) or error
            raise InvalidInputError(
                f"file of a secret cannot be read: path={path} {place} reason={reason} "
                "fix=create it, or correct the path"
            ) from error
        if text:
            self.secrets.add(text)
        return text

    def _stand_in(self, reference: str) -> str:
        """A value that most options take: a text, a number, a size and a duration."""
        if reference not in self.absent:
            self.absent.append(reference)
        return "1"
