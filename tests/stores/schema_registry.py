"""A schema registry with the API of Confluent's, as far as clients of Avro use it.

Schemas have global ids; a subject has versions, and takes a schema only if it reads what the newest version wrote
(BACKWARD, the default of Confluent's registry). Confluent's own clients are tested against it as well.
"""

import base64
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import unquote, urlsplit

USER_INFO, TOKEN = "writer:hush", "token-never-shown"
_WIDER = {"int": ("long", "float", "double"), "long": ("float", "double"), "float": ("double",),
          "string": ("bytes",), "bytes": ("string",)}  # fmt: skip


class SchemaRegistryServer:
    """The server as a context manager; everything is forgotten with it."""

    def __init__(self, *, is_closed: bool = False) -> None:
        """Prepare; ``is_closed``: only for those who know ``USER_INFO`` or ``TOKEN``."""
        self.schemas: dict[int, str] = {}
        self.subjects: dict[str, list[int]] = {}
        self.requests: Counter[str] = Counter()  # by method and first word of the path
        self._is_closed = is_closed
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _answer(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                status, found = registry.answer(self.command, self.path, body, self.headers.get("Authorization"))
                data = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = _answer

            def log_message(self, *_: object) -> None:
                """Nothing is printed."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def text_of(self, subject: str) -> str:
        """The newest schema of a subject."""
        return self.schemas[self.subjects[subject][-1]]

    def answer(self, method: str, target: str, body: Any, login: str | None) -> tuple[int, Any]:
        """Status and body."""
        allowed = (f"Basic {base64.b64encode(USER_INFO.encode()).decode()}", f"Bearer {TOKEN}")
        if self._is_closed and login not in allowed:
            return 401, {"error_code": 401, "message": "Unauthorized"}
        words = [unquote(word) for word in urlsplit(target).path.strip("/").split("/")]
        with self._lock:
            self.requests[f"{method} {words[0]}"] += 1
            match method, words:
                case "GET", ["schemas", "ids", number]:
                    text = self.schemas.get(int(number))
                    missing = (404, {"error_code": 40403, "message": "Schema not found"})
                    return missing if text is None else (200, {"schema": text})
                case "GET", ["subjects", subject, "versions", "latest"] if subject in self.subjects:
                    return 200, self._version(subject, len(self.subjects[subject]))
                case "POST", ["subjects", subject, "versions"]:
                    return self._registered(subject, body["schema"])
                case "POST", ["subjects", subject] if subject in self.subjects:
                    for version, schema_id in enumerate(self.subjects[subject], start=1):
                        if json.loads(self.schemas[schema_id]) == json.loads(body["schema"]):
                            return 200, self._version(subject, version)
        return 404, {"error_code": 40401, "message": f"not found: {method} {target}"}

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        schema_id = self.subjects[subject][version - 1]
        return {"subject": subject, "id": schema_id, "version": version, "schema": self.schemas[schema_id]}

    def _registered(self, subject: str, text: str) -> tuple[int, Any]:
        versions = self.subjects.get(subject, [])
        ids = {json.dumps(json.loads(known), sort_keys=True): number for number, known in self.schemas.items()}
        schema_id = ids.get(json.dumps(json.loads(text), sort_keys=True), len(self.schemas) + 1)
        if schema_id in versions:
            return 200, {"id": schema_id}
        if versions:
            problem = unreadable(json.loads(text), json.loads(self.schemas[versions[-1]]))
            if problem is not None:
                return 409, {"error_code": 409, "message": f"incompatible with an earlier schema: {problem}"}
        self.schemas[schema_id] = text
        self.subjects[subject] = [*versions, schema_id]
        return 200, {"id": schema_id}


def unreadable(reader: Any, writer: Any) -> str | None:
    """Why a reader's schema does not read what was written with another; None if it does."""
    if isinstance(writer, list):
        return next((found for each in writer if (found := unreadable(reader, each)) is not None), None)
    if isinstance(reader, list):
        found = [unreadable(each, writer) for each in reader]
        return None if None in found else found[-1]
    kinds = [each["type"] if isinstance(each, dict) else each for each in (reader, writer)]
    if kinds[0] != kinds[1]:
        return None if kinds[0] in _WIDER.get(kinds[1], ()) else f"TYPE_MISMATCH {kinds[1]} -> {kinds[0]}"
    if kinds[0] == "record":
        return _unreadable_record(reader, writer)
    if kinds[0] in ("array", "map"):
        part = "items" if kinds[0] == "array" else "values"
        return unreadable(reader[part], writer[part])
    decimal = [each.get("scale") for each in (reader, writer) if isinstance(each, dict)]
    return f"DECIMAL_SCALE {decimal}" if len(set(decimal)) > 1 else None


def _unreadable_record(reader: Any, writer: Any) -> str | None:
    written = {each["name"]: each for each in writer["fields"]}
    for field in reader["fields"]:
        there = next((written[name] for name in (field["name"], *field.get("aliases", ())) if name in written), None)
        if there is None:
            if "default" not in field:
                return f"READER_FIELD_MISSING_DEFAULT_VALUE {field['name']}"
        elif (problem := unreadable(field["type"], there["type"])) is not None:
            return f"{field['name']}: {problem}"
    return None
