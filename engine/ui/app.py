"""The console as a web application of this machine: who may ask, the addresses of its pages, and how they are answered.

Every answer is to GET or HEAD, but for one address that takes actions, if it may. A page is sent whole; its script asks
for the part that may change, by its ETag.
"""

import asyncio
import hashlib
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from types import ModuleType
from typing import Final
from urllib.parse import parse_qsl, urlencode

import uvicorn
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from engine.drawing.theme import STYLE
from engine.follow.clients import Admission
from engine.runtime.listener import HEAD_S, SEND_S
from engine.ui.console import Console
from engine.ui.graph import graph_page, what_if_page
from engine.ui.pages import Asked, table_page, warehouse_page
from engine.ui.parts import ACT_PATH, Cell, Page, PagePart, table_address
from engine.ui.rows import changes_page, rows_page
from lsm.errors import CorruptDataError, FluvialError, InvalidInputError

logger = logging.getLogger("fluvial.ui")

TOKEN: Final = "token"
"""The parameter of the first address: it becomes a cookie, and is not in any other address."""
PART_HEADER: Final = "x-fluvial-part"
"""The header by which the script asks for the part of a page that may change."""
_MOST_CONNECTIONS: Final = 100
_LARGEST_FORM: Final = 4096  # bytes
_FORM_TYPE: Final = "application/x-www-form-urlencoded"
_FILES: Final = Path(__file__).parent / "files"
_ALWAYS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Gate:
    """Answers who may not ask, and adds the headers of every answer."""

    def __init__(self, app: ASGIApp, admission: Admission, *, allows_actions: bool) -> None:
        self._app, self._admission, self._allows_actions = app, admission, allows_actions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Implements ASGI."""
        if scope["type"] != "http":
            return  # no WebSocket is accepted, and nothing begins or ends with the server

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message["headers"],
                    *((name.encode(), value.encode()) for name, value in _ALWAYS.items()),
                ]
            await send(message)

        refused = self._refused(Request(scope))
        await (self._app if refused is None else refused)(scope, receive, with_headers)

    def _refused(self, request: Request) -> Response | None:
        """The answer to who may not ask, or has just shown the token; None: the page answers."""
        if not self._admission.answers_to(request.headers.get("host", "")):
            return PlainTextResponse("this console answers to 127.0.0.1 and localhost\n", HTTPStatus.FORBIDDEN)
        is_action = request.method == "POST" and self._allows_actions and request.url.path == ACT_PATH
        if request.method not in ("GET", "HEAD") and not is_action:
            headers = {"Allow": "GET, HEAD"}
            return PlainTextResponse("this page changes nothing\n", HTTPStatus.METHOD_NOT_ALLOWED, headers)
        query = parse_qsl(request.url.query, keep_blank_values=True)
        given = [] if is_action else [value for name, value in query if name == TOKEN]
        if given and self._admission.is_token(given[0]):
            rest = urlencode([pair for pair in query if pair[0] != TOKEN])
            # a path of two slashes would lead to another server
            path = "/" + request.scope["raw_path"].decode("latin-1").lstrip("/\\") + ("?" if rest else "") + rest
            answer = RedirectResponse(path, HTTPStatus.SEE_OTHER)
            answer.set_cookie(self._admission.cookie, given[0], httponly=True, samesite="strict")
            return answer
        if not self._admission.admits(request.headers.get("authorization", ""), request.headers.get("cookie", "")):
            said = "open the address that fluvial ui printed: its token opens this console\n"
            return PlainTextResponse(said, HTTPStatus.UNAUTHORIZED)
        if is_action and not _is_of_console(request):
            return PlainTextResponse("actions come from pages of this console\n", HTTPStatus.FORBIDDEN)
        return None


def _is_of_console(request: Request) -> bool:
    """Whether a page of this console sent a request. Browsers say it in headers that pages cannot write.

    ``Sec-Fetch-Site`` is exact: other ports of this machine are another origin, and the same site, which gets the
    cookie. Without it the origin must be the host that was asked; one that does not fit is refused in each case.
    """
    site, origin = request.headers.get("sec-fetch-site"), request.headers.get("origin", "null")
    is_own = origin == f"http://{request.headers['host']}"
    return is_own if site is None else site == "same-origin" and (is_own or origin == "null")


def application(console: Console, admission: Admission) -> ASGIApp:
    """The console for browsers."""
    templates = Environment(loader=FileSystemLoader(_FILES), autoescape=True, undefined=StrictUndefined)
    templates.globals.update(table_address=table_address)

    def route(path: str, page: Callable[[Request, Asked], Page]) -> Route:
        def answer(request: Request) -> Response:
            return _answered(templates, request, page)

        return Route(path, answer)

    def named(request: Request) -> str:
        return f"{request.path_params['database']}.{request.path_params['table']}"

    style = (_FILES / "console.css").read_text(encoding="utf-8") + f"\nsvg {{\n{STYLE}\n}}\n"
    script = (_FILES / "live.js").read_text(encoding="utf-8")
    routes = [
        route("/", lambda _, query: warehouse_page(console, query)),
        route("/table/{database}/{table}", lambda request, _: table_page(console, named(request))),
        route("/table/{database}/{table}/data", lambda request, asked: rows_page(console, named(request), asked)),
        route("/table/{database}/{table}/changes", lambda request, asked: changes_page(console, named(request), asked)),
        route("/jobs", lambda _, __: _jobs().jobs_page(console)),
        route("/job", lambda _, asked: _jobs().job_page(console, asked)),
        route("/parked", lambda _, asked: _parked().parked_page(console, asked)),
        Route(ACT_PATH, partial(_acted, templates, console), methods=["POST"]),
        route("/lineage", lambda _, __: graph_page(console)),
        route("/what-if", lambda _, asked: what_if_page(console, asked)),
        Route("/console.css", lambda _: Response(style, media_type="text/css")),
        Route("/live.js", lambda _: Response(script, media_type="text/javascript")),
        Route("/{rest:path}", lambda request: _answered(templates, request, _nowhere)),
    ]
    return Gate(Starlette(routes=routes), admission, allows_actions=console.allows_actions)


def _jobs() -> ModuleType:
    from engine.ui import jobs  # which imports PySpark

    return jobs


def _parked() -> ModuleType:
    from engine.ui import parked  # likewise

    return parked


async def _acted(templates: Environment, console: Console, request: Request) -> Response:
    """Do what a form asks for, and lead to the page that shows it; or a page that says why not."""
    body, is_form = b"", request.headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM_TYPE
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST_FORM or not is_form:
            return PlainTextResponse(f"a form of at most {_LARGEST_FORM} bytes\n", HTTPStatus.BAD_REQUEST)

    def act() -> Response:
        given = dict(parse_qsl(body.decode("utf-8", errors="replace"), keep_blank_values=True))
        try:
            return RedirectResponse(_parked().act(console, given), HTTPStatus.SEE_OTHER)
        except Exception as error:  # noqa: BLE001  (the edge of a request)
            return _sent(templates, request, *_failure(error, HTTPStatus.CONFLICT))

    return await run_in_threadpool(act)


def _nowhere(request: Request, _: Asked) -> Page:
    raise InvalidInputError(f"no such page: path={request.url.path[:200]} fix='begin at the warehouse'")


def _answered(templates: Environment, request: Request, page: Callable[[Request, Asked], Page]) -> Response:
    """The page or its part, or why there is none: errors are pages too, without a trace."""
    status = HTTPStatus.OK
    try:
        made = page(request, {**request.query_params})
    except Exception as error:  # noqa: BLE001  (the edge of a request)
        made, status = _failure(error, HTTPStatus.NOT_FOUND)
    return _sent(templates, request, made, status)


def _sent(templates: Environment, request: Request, made: Page, status: HTTPStatus) -> Response:
    main = templates.get_template("main.html").render(page=made)
    tag = f'"{hashlib.sha256(main.encode(errors="replace")).hexdigest()[:32]}"'
    headers = {"ETag": tag}
    if PART_HEADER not in request.headers:
        body = templates.get_template("page.html").render(page=made, main=Markup(main), tag=tag)
    elif request.headers.get("if-none-match") == tag:
        return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)
    else:
        body = main
    content = body.encode(errors="replace")
    return Response(content, status, headers, media_type="text/html; charset=utf-8")


def _failure(error: Exception, invalid: HTTPStatus) -> tuple[Page, HTTPStatus]:
    """What is answered to an error. ``invalid``: the status of a request that has to be another one."""
    if isinstance(error, InvalidInputError):
        return _problem(error), invalid
    if isinstance(error, CorruptDataError):
        return _problem(error), HTTPStatus.INTERNAL_SERVER_ERROR
    if isinstance(error, FluvialError | OSError):
        return _problem(error), HTTPStatus.SERVICE_UNAVAILABLE
    logger.error("a page failed", exc_info=error)  # a bug
    return _problem(f"unexpected: {type(error).__name__}"), HTTPStatus.INTERNAL_SERVER_ERROR


def _problem(reason: object) -> Page:
    facts = [("", Cell(text=" ".join(str(reason).split())[:2000], kind="bad"))]
    return Page(
        title="this page cannot be shown", path=[("warehouse", "/")], sections=[PagePart(name="problem", facts=facts)]
    )


class _TimedProtocol(H11Protocol):
    """A connection with a time limit for each of its requests, which gives its place to one who asks.

    It does for this server what ``engine.runtime.listener`` does for those of threads.
    """

    waiting: dict["_TimedProtocol", None]  # of one server: for their requests, longest first
    _limit_s: float | None = None
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Implements ``connection_made`` of the base class."""
        super().connection_made(transport)
        if len(self.connections) >= _MOST_CONNECTIONS and self.waiting:
            next(iter(self.waiting))._end()
        self._follow()

    def handle_events(self) -> None:
        """Implements ``handle_events`` of the base class, which answers what has been sent whole."""
        super().handle_events()
        self._follow()

    def on_response_complete(self) -> None:
        """Implements ``on_response_complete`` of the base class."""
        super().on_response_complete()
        self._follow()

    def pause_writing(self) -> None:
        """Implements ``pause_writing`` of the base class: the client does not read."""
        super().pause_writing()
        self._follow()

    def resume_writing(self) -> None:
        """Implements ``resume_writing`` of the base class."""
        super().resume_writing()
        self._follow()

    def connection_lost(self, exc: Exception | None) -> None:
        """Implements ``connection_lost`` of the base class."""
        super().connection_lost(exc)
        self._set(None)

    def _follow(self) -> None:
        """Set the limit of what the connection does now: it sends a request, is answered, or reads the answer."""
        if self.flow.write_paused or self.transport.is_closing():
            self._set(SEND_S)
        elif self.cycle is not None and not self.cycle.response_complete:
            self._set(None)
        else:
            self._set(HEAD_S)
            self.waiting[self] = None

    def _set(self, limit_s: float | None) -> None:
        if limit_s == self._limit_s:
            return
        self.waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        self._limit_s = limit_s
        self._timer = None if limit_s is None else self.loop.call_later(limit_s, self._end)

    def _end(self) -> None:
        self._set(None)
        self.connections.discard(self)
        self.transport.abort()


def serve(app: ASGIApp, listener: socket.socket, *, stop: threading.Event) -> None:
    """Answer on a bound socket until an event is set."""
    config = uvicorn.Config(
        app, http=type("Protocol", (_TimedProtocol,), {"waiting": {}}), lifespan="off", ws="none",
        log_config=None, access_log=False, server_header=False, date_header=False,
        proxy_headers=False, limit_concurrency=_MOST_CONNECTIONS, timeout_keep_alive=5, timeout_graceful_shutdown=2,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="fluvial-ui", daemon=True)
    thread.start()
    stop.wait()
    server.should_exit = True
    thread.join()
