"""Who may ask a server of this machine: by the name under which they ask, and by a token."""

import hmac
import re
from dataclasses import dataclass, field
from typing import Final

from lsm.errors import InvalidInputError

COOKIE: Final = "fluvial-token"
"""Name of the cookie that has the token."""
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]{16,4096}=*")  # RFC 6750; no one guesses it
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "[::1]"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """Decides on the headers of a request. Raises: InvalidInputError: the token can be guessed or is no header's text.

    On the loopback other host names are refused, because a page elsewhere may have made its own name lead here.
    """

    is_local: bool = False  # only this machine reaches the server
    hosts: frozenset[str] = frozenset()  # names by which clients may ask as well; empty: any name, where not local
    token: str | None = field(default=None, repr=False)  # that clients send; None: all who reach the server are let in
    cookie: str = COOKIE

    def __post_init__(self) -> None:
        if self.token is not None and _TOKEN.fullmatch(self.token) is None:
            raise InvalidInputError(
                f"not a token: characters={len(self.token)} expected='16 or more letters, digits and ._~+/-' "
                "fix='make one: openssl rand -hex 24'"
            )

    def answers_to(self, host: str) -> bool:
        """Whether a client may ask by the name in a header ``Host``, which may have a port."""
        name = host if host.endswith("]") else host.rsplit(":", 1)[0]
        if not self.is_local and not self.hosts:
            return True
        return name.lower() in self.hosts or (self.is_local and name in _LOOPBACK)

    def admits(self, authorization: str, cookies: str) -> bool:
        """Whether a client has sent the token by one of two headers, in a time that says nothing about it."""
        if self.token is None:
            return True
        scheme, _, given = authorization.partition(" ")
        sent = [given.strip()] if scheme.lower() == "bearer" else []
        pairs = (each.partition("=") for each in cookies.split(";"))
        sent += [value.strip() for name, _, value in pairs if name.strip() == self.cookie]
        return any([self.is_token(each) for each in sent])

    def is_token(self, given: str) -> bool:
        """Whether a text is the token."""
        return self.token is not None and hmac.compare_digest(given.encode(errors="replace"), self.token.encode())
