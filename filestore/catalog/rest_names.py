"""Names of databases and tables that a server of Paimon's REST catalog keeps; read only.

The server says which tables there are and where; what a table is, is in its files, as everywhere. Commits are the
server's to make, so writes are refused. Source: Paimon rest-catalog-open-api.yaml, "Bear Token".
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from http.client import HTTPException
from typing import Any, Final, NoReturn
from urllib.error import HTTPError
from urllib.parse import quote_plus, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from filestore.catalog.table_names import TablePlace, database_below
from filestore.catalog.warehouse import warehouse_path
from filestore.schema.table_schema import TableSchema
from lsm.errors import InvalidInputError, UnavailableError
from lsm.secret_names import is_same_place, shown_address

READ_ONLY: Final = "a REST catalog is only read, its server commits: metastore=rest fix='write by an engine of Paimon'"
_TIMEOUT_S: Final = 60.0
_MOST_BYTES: Final = 64 << 20  # of an answer
_MISSING: Final = 404
_DENIED: Final = frozenset({401, 403})
_OWN_TYPES: Final = frozenset({None, "table"})  # others are not in Paimon's layout
_Json = dict[str, Any]


class _SamePlace(HTTPRedirectHandler):
    """A token is for the address beside it: a redirect elsewhere is followed without one only."""

    def redirect_request(self, req: Request, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Request | None:
        """The next request. Raises: OSError."""
        if req.has_header("Authorization") and not is_same_place(req.full_url, newurl):
            fp.close()
            raise OSError(f"redirect to another address, which gets no token: {shown_address(newurl)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _answered(request: Request) -> _Json:
    """Raises: HTTPError, OSError, or ValueError and RecursionError for what is no JSON object."""
    with build_opener(_SamePlace()).open(request, timeout=_TIMEOUT_S) as answer:
        body = answer.read(_MOST_BYTES + 1)
    if len(body) > _MOST_BYTES:
        raise ValueError(f"an answer of more than {_MOST_BYTES} bytes")
    found = json.loads(body)
    if not isinstance(found, dict):
        raise ValueError(f"no JSON object: {found!r:.100}")  # noqa: TRY004 - of another's text
    return found


@dataclass(frozen=True)
class RestServer:
    """A server, asked each time. It can be pickled."""

    uri: str = field(repr=False)  # may have a login
    warehouse: str  # its name there
    token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, uri: str | None, *, warehouse: str, provider: str | None, token: str | None) -> "RestServer":
        """Create from options, without a request. Raises: InvalidInputError."""
        parts = urlsplit(uri or "")
        if uri is None or parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            shown = None if uri is None else shown_address(uri)
            raise InvalidInputError(f"metastore=rest needs its server: uri={shown} fix='set uri=https://host:port'")
        if (provider is None) != (token is None):
            raise InvalidInputError("token.provider and token go together: fix='set token.provider=bear and token'")
        return cls(uri.rstrip("/"), warehouse, token)

    @cached_property
    def _prefix(self) -> str:
        """Start of all request paths: ``/v1``, and the server's ``prefix`` if its configuration has one."""
        found = self._get("/v1/config", {"warehouse": self.warehouse}) or {}
        settings = {**(found.get("defaults") or {}), **(found.get("overrides") or {})}
        prefix = settings.get("prefix")
        return f"/v1/{quote_plus(prefix)}" if prefix else "/v1"

    def get(self, *names: str, **query: str) -> _Json | None:
        """The object under a path of names; None: there is none. Raises: InvalidInputError, UnavailableError."""
        return self._get(self._prefix + "".join(f"/{quote_plus(name)}" for name in names), query)

    def listed(self, key: str, *names: str) -> Iterator[str] | None:
        """Names on all pages of a list; None: there is no such list."""
        first = self.get(*names)
        return None if first is None else self._pages(first, key, names)

    def _pages(self, page: _Json, key: str, names: tuple[str, ...]) -> Iterator[str]:
        while True:
            yield from page.get(key) or []
            token = page.get("nextPageToken")
            if not token:
                return
            page = self.get(*names, pageToken=token) or {}

    def _get(self, path: str, query: Mapping[str, str]) -> _Json | None:
        url = f"{self.uri}{path}" + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            return _answered(Request(url, headers=headers))
        except HTTPError as error:
            with error:
                if error.code == _MISSING:
                    return None
                said = error.read(2000).decode(errors="replace")
            if error.code in _DENIED:
                raise InvalidInputError(
                    f"the REST catalog refuses the login: url={url} status={error.code} said={said!r} fix='set token'"
                ) from error
            raise UnavailableError(
                f"the REST catalog does not answer: url={url} status={error.code} said={said!r}"
            ) from error
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise UnavailableError(f"the REST catalog does not answer: url={url} error={error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RestNames:
    """The names of a server's warehouse; tables of other formats are not listed."""

    server: RestServer
    root: str  # of databases without a location

    def databases(self) -> list[str]:
        """All databases, sorted."""
        return sorted(self.server.listed("databases", "databases") or ())

    def has_database(self, database: str) -> bool:
        """Whether there is such a database."""
        return self.server.get("databases", database) is not None

    def database_path(self, database: str) -> str:
        """Location of a database; below the warehouse while it does not exist or has none."""
        found = self.server.get("databases", database) or {}
        return warehouse_path(found.get("location") or database_below(self.root, database))

    def database_properties(self, database: str) -> Mapping[str, str]:
        """Stored properties of a database."""
        return dict((self.server.get("databases", database) or {}).get("options") or {})

    def tables(self, database: str) -> list[str]:
        """Names of a database's tables, sorted."""
        return sorted(self.server.listed("tables", "databases", database, "tables") or ())

    def table_paths(self, database: str) -> Mapping[str, str]:
        """Names and directories of its tables."""
        found = {name: self._table(database, name) for name in self.tables(database)}
        return {name: warehouse_path(each["path"]) for name, each in found.items() if each is not None}

    def has_table(self, database: str, table: str) -> bool:
        """Whether the name is that of a table in Paimon's layout."""
        return self._table(database, table) is not None

    def place(self, database: str, table: str) -> TablePlace:
        """Location of a table; in the directory of its database while it does not exist."""
        if (found := self._table(database, table)) is None:
            return TablePlace(path=f"{self.database_path(database)}/{table}")
        path = warehouse_path(found["path"])
        return TablePlace(path=path, is_own=not path.startswith(f"{database_below(self.root, database)}/"))

    @property
    def is_trusted(self) -> bool:
        """Yes: the server names the places of all tables."""
        return True

    def _table(self, database: str, table: str) -> _Json | None:
        found = self.server.get("databases", database, "tables", table)
        options = ((found or {}).get("schema") or {}).get("options") or {}
        return found if found is not None and options.get("type") in _OWN_TYPES and found.get("path") else None

    def owns_files(self, database: str, table: str) -> bool:
        """Never: the server's are not dropped."""
        return False

    def add_database(self, database: str) -> None:
        """Refused."""
        _refuse()

    def remove_database(self, database: str) -> None:
        """Refused."""
        _refuse()

    def add_table(self, database: str, table: str, schema: TableSchema, place: TablePlace) -> None:
        """Refused."""
        _refuse()

    def note_schema(self, database: str, table: str, schema: TableSchema) -> None:
        """Refused."""
        _refuse()

    def remove_table(self, database: str, table: str, path: str) -> None:
        """Refused."""
        _refuse()

    @property
    def keeps_places(self) -> bool:
        """No: nothing is renamed."""
        return False

    def rename_table(self, source: tuple[str, str], target: tuple[str, str], move: Callable[[], None] | None) -> None:
        """Refused."""
        _refuse()


def _refuse() -> NoReturn:
    raise InvalidInputError(READ_ONLY)
