"""Schemas by id from a Confluent Schema Registry or a compatible one (Apicurio, Karapace, Redpanda).

A reader needs a single kind of request, and confluent-kafka's registry client would add a dozen dependencies.

Source: Confluent "Schema Registry API Reference", GET /schemas/ids/{id}.
"""

import base64
import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from lsm.errors import InvalidInputError, UnavailableError
from lsm.secret_names import shown_address

_TIMEOUT_S: Final = 10.0
_NOT_FOUND: Final = 404
_REFUSED: Final = (401, 403)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistry:
    """A registry with a cache: the schema of an id never changes."""

    url: str = field(repr=False)  # may hold a login
    user_info: str | None = field(default=None, repr=False)  # user:password
    _known: dict[int, Any] = field(default_factory=dict, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Raises: InvalidInputError when the URL is not http or https."""
        if urlsplit(self.url).scheme not in ("http", "https"):
            raise InvalidInputError(
                f"not an address: schema.registry.url={shown_address(self.url)} example=http://localhost:8081"
            )

    def schema(self, schema_id: int) -> Any:
        """The Avro schema of an id as parsed JSON; None when the registry has no such schema.

        Raises:
            UnavailableError: the registry does not answer.
            InvalidInputError: it rejects the user, or the schema is not a self-contained Avro schema.
        """
        found = self._known.get(schema_id)
        if found is None:
            found = self._fetched(schema_id)
            if found is not None:
                self._known[schema_id] = found
        return found

    def _fetched(self, schema_id: int) -> Any:
        request = urllib.request.Request(f"{self.url.rstrip('/')}/schemas/ids/{schema_id}")
        request.add_header("Accept", "application/vnd.schemaregistry.v1+json, application/json")
        if self.user_info is not None:
            request.add_header("Authorization", f"Basic {base64.b64encode(self.user_info.encode()).decode()}")
        where = f"schema.registry.url={shown_address(self.url)} schema_id={schema_id}"
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                found = json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code == _NOT_FOUND:
                return None
            if error.code in _REFUSED:
                raise InvalidInputError(
                    f"the schema registry rejects the credentials: status={error.code} {where} "
                    "fix=set schema.registry.basic.auth.user.info"
                ) from error
            raise UnavailableError(f"the schema registry fails: status={error.code} {where}") from error
        except (OSError, ValueError) as error:
            raise UnavailableError(
                f"the schema registry does not answer: {where} reason={shown_address(str(error))}"
            ) from error
        if found.get("schemaType", "AVRO") != "AVRO" or found.get("references"):
            raise InvalidInputError(
                f"not a self-contained Avro schema: {where} type={found.get('schemaType', 'AVRO')} "
                f"references={len(found.get('references') or ())} fix=register it as one Avro schema"
            )
        return json.loads(found["schema"])
