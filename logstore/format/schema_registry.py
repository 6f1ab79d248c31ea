"""Schemas in a Confluent Schema Registry or a compatible one (Apicurio, Karapace, Redpanda): by id, and by subject.

Readers ask for the schema of an id, which never changes: a process asks once. Writers register a schema under a
subject; one that is registered already keeps its id.

Source: Confluent "Schema Registry API Reference", GET /schemas/ids/{id}, POST /subjects/{subject}/versions.
"""

import base64
import http.client
import io
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote, urlsplit

from lsm.errors import InvalidInputError, UnavailableError
from lsm.secret_names import is_same_place, shown_address

_TIMEOUT_S: Final = 10.0
_REASON_BYTES: Final = 16 * 1024
_MOST_BYTES: Final = 16 << 20  # of an answer
_KNOWN_SCHEMAS: Final = 1024
_REFUSED: Final = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN)
_CONTENT: Final = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryKeys:
    """How the options are called by which a registry was given, for messages."""

    address: str = "schema.registry.url"
    login: str = "schema.registry.basic.auth.user.info"


LOG_REGISTRY: Final = RegistryKeys(
    address="log.schema-registry.url",
    login="log.schema-registry.basic-auth.user-info or log.schema-registry.bearer-auth.token",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistry:
    """A registry, and who asks. Small and picklable."""

    url: str = field(repr=False)  # may hold a login
    user_info: str | None = field(default=None, repr=False)  # user:password
    token: str | None = field(default=None, repr=False)
    ca_file: str | None = None  # PEM; None: the system's
    keys: RegistryKeys = RegistryKeys()

    def __post_init__(self) -> None:
        """Raises: InvalidInputError when the URL is not http or https."""
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise InvalidInputError(
                f"not an address: {self.keys.address}={shown_address(self.url)} example=http://localhost:8081"
            )

    def schema(self, schema_id: int) -> Any:
        """The Avro schema of an id as parsed JSON; None when the registry has no such schema. See ``schema_text``."""
        text = self.schema_text(schema_id)
        if text is None:
            return None
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(
                f"not an Avro schema: {self._shown} schema_id={schema_id} reason={error!r:.200} fix=register it again"
            ) from error

    def schema_text(self, schema_id: int) -> str | None:
        """The Avro schema of an id; None when the registry has no such schema.

        Raises:
            UnavailableError: the registry does not answer.
            InvalidInputError: it rejects the user, or the schema is not a self-contained Avro schema.
        """
        try:
            return _schema_text(self, schema_id)
        except KeyError:
            return None

    def register(self, subject: str, text: str) -> int:
        """Register a schema as the newest version of a subject, unless it is one of its versions.

        Args:
            subject: ``<topic>-key`` or ``<topic>-value``.
            text: the Avro schema.

        Returns:
            The id of the schema.

        Raises:
            UnavailableError: the registry does not answer.
            InvalidInputError: it rejects the user, or the schema, because of the subject's other versions.
        """
        where = f"{self._shown} subject={subject}"
        path = f"subjects/{quote(subject, safe='')}"
        try:
            given = self._asked(f"{path}/versions", where, {"schema": text}).get("id")
        except urllib.error.HTTPError as error:
            reason = _reason(error)
            if error.code == HTTPStatus.CONFLICT:
                raise InvalidInputError(
                    f"the schema registry refuses the table's schema: {where} {self._difference(path, where, text)} "
                    f"reason={reason!r} fix='change the columns otherwise, set another compatibility of the subject, "
                    "or choose another log.kafka.topic'"
                ) from error
            if error.code == HTTPStatus.UNPROCESSABLE_ENTITY:
                raise InvalidInputError(
                    f"the schema registry does not take the table's schema: {where} reason={reason!r} schema={text}"
                ) from error
            raise UnavailableError(
                f"the schema registry fails: status={error.code} {where} reason={reason!r}"
            ) from error
        if type(given) is not int:
            raise UnavailableError(f"the schema registry answers without an id: {where} id={given!r:.100}")
        return given

    @property
    def _shown(self) -> str:
        return f"{self.keys.address}={shown_address(self.url)}"

    def _difference(self, path: str, where: str, text: str) -> str:
        """The difference of a schema to the subject's newest version."""
        try:
            newest = self._asked(f"{path}/versions/latest", where)
            before, after = _field_types(json.loads(newest["schema"])), _field_types(json.loads(text))
        except (urllib.error.HTTPError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return ""
        parts = {
            "added": [name for name in after if name not in before],
            "missing": [name for name in before if name not in after],
            "changed": [
                f"{name}: {before[name]} -> {after[name]}"
                for name in after
                if name in before and before[name] != after[name]
            ],
        }
        facts = " ".join(f"{word}={names}" for word, names in parts.items() if names)
        return f"version={newest.get('version')} {facts}".rstrip()

    def _asked(self, path: str, where: str, body: Any = None) -> Any:
        """The answer as parsed JSON. Raises: HTTPError for a status that the caller knows better."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"{self.url.rstrip('/')}/{path}", data=data)
        request.add_header("Accept", f"{_CONTENT}, application/json")
        if data is not None:
            request.add_header("Content-Type", _CONTENT)
        if self.user_info is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(self.user_info.encode()).decode()}")
        elif self.token is not None:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            context = None if self.ca_file is None else ssl.create_default_context(cafile=self.ca_file)
        except OSError as error:
            raise InvalidInputError(
                f"certificates cannot be read: log.schema-registry.ssl.ca.location={self.ca_file} reason={error}"
            ) from error
        try:
            found = _within(_TIMEOUT_S, lambda: _answered(request, context))
        except urllib.error.HTTPError as error:
            if error.code in _REFUSED:
                raise InvalidInputError(
                    f"the schema registry rejects the credentials: status={error.code} {where} "
                    f"fix=set {self.keys.login}"
                ) from error
            raise
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise UnavailableError(
                f"the schema registry does not answer: {where} reason={shown_address(str(error))}"
            ) from error
        if not isinstance(found, dict):
            raise UnavailableError(f"the schema registry answers with no JSON object: {where} answer={found!r:.100}")
        return found


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirect on the same host by the same scheme: a login is for the address beside it."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The next request; another place is an error of the registry."""
        if req.has_header("Authorization") and not is_same_place(req.full_url, newurl):
            fp.close()
            raise OSError(f"redirect to another address, which gets no login: {shown_address(newurl)}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _answered(request: urllib.request.Request, context: ssl.SSLContext | None) -> Any:
    """The answer as parsed JSON. Raises: HTTPError, OSError, or ValueError for what is none."""
    opener = urllib.request.build_opener(_SameHost(), urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            body = answer.read(_MOST_BYTES + 1)
    except urllib.error.HTTPError as error:
        with error:
            reason = io.BytesIO(error.read(_REASON_BYTES))
        raise urllib.error.HTTPError(error.url, error.code, error.reason, error.headers, reason) from None
    if len(body) > _MOST_BYTES:
        raise ValueError(f"an answer of more than {_MOST_BYTES} bytes")
    try:
        return json.loads(body)
    except RecursionError as error:
        raise ValueError("an answer that is nested too deeply") from error


def _within(limit_s: float, ask: Callable[[], Any]) -> Any:
    """What is asked, in a thread that is left alone when it takes too long: a server may send a byte now and then.

    Raises: what asking raises; TimeoutError.
    """
    asked: Future[Any] = Future()

    def work() -> None:
        try:
            asked.set_result(ask())
        except (OSError, ValueError, http.client.HTTPException) as error:
            asked.set_exception(error)

    threading.Thread(target=work, name="fluvial-registry", daemon=True).start()
    try:
        return asked.result(limit_s)
    except TimeoutError as error:
        if asked.done():
            raise
        raise TimeoutError(f"no whole answer within {limit_s:g} s") from error


@lru_cache(maxsize=_KNOWN_SCHEMAS)
def _schema_text(registry: SchemaRegistry, schema_id: int) -> str:
    """Raises: KeyError when there is none, which is not remembered."""
    where = f"{registry.keys.address}={shown_address(registry.url)} schema_id={schema_id}"
    try:
        found = registry._asked(f"schemas/ids/{schema_id}", where)
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            raise KeyError(schema_id) from error
        raise UnavailableError(f"the schema registry fails: status={error.code} {where}") from error
    if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
        raise InvalidInputError(
            f"not a self-contained Avro schema: {where} type={found.get('schemaType', 'AVRO')} "
            f"references={len(found.get('references') or ())} fix=register it as one Avro schema"
        )
    text = found.get("schema")
    if not isinstance(text, str):
        raise UnavailableError(f"the schema registry answers without a schema: {where} schema={text!r:.100}")
    return text


def _reason(error: urllib.error.HTTPError) -> str:
    """The registry's reason for a refusal."""
    try:
        return str(json.loads(error.read()).get("message", error.reason))
    except (OSError, ValueError, AttributeError, RecursionError):
        return str(error.reason)


def _field_types(schema: Any) -> dict[str, str]:
    """The fields of a record by name; those of an envelope's row instead of the envelope's."""
    fields = {each["name"]: each["type"] for each in schema.get("fields", ())}
    sides = fields.get("after")
    if "before" in fields and isinstance(sides, list) and isinstance(sides[-1], dict):
        return _field_types(sides[-1])
    return {name: json.dumps(each) for name, each in fields.items()}
