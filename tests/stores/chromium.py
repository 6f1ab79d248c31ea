"""Chromium without a screen, from npm with its fonts: shows a page as a user sees it, and is asked through DevTools.

It gets its requests and gives its answers on two pipes, so no port is needed. Fonts are those of the package (Open
Sans), whatever the machine has.
"""

import base64
import json
import os
import select
import subprocess
import sys
import tarfile
from collections import deque
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import pyarrow as pa

from engine.broker.jars import cache_dir
from tests.stores import processes
from tests.stores.made_once import made_once
from tests.stores.npm import npm_packages

_PARTS: Final = ("al2023", "fonts", "swiftshader")
# Between fork and exec: the pipes become descriptors 3 and 4, and the kernel ends it with its parent.
_BEGIN: Final = (
    "import ctypes, os, sys; ctypes.CDLL(None).prctl(1, 15); os.getppid() == int(sys.argv[1]) or sys.exit(1);"
    "given, taken = (os.dup(int(each)) for each in sys.argv[2:4]); given, taken = (os.dup2(one, two) for one, two in"
    " ((os.dup(given), 3), (os.dup(taken), 4))); os.execv(sys.argv[4], sys.argv[4:])"
)
_PATIENCE_S: Final = 60


def chromium() -> Path:
    """The directory of the program, unpacked once into the user's cache."""
    packed = npm_packages("chromium") / "node_modules" / "@sparticuz" / "chromium" / "bin"
    return made_once(cache_dir() / "chromium" / packed.parents[3].name, partial(_unpack, packed))


def _unpack(packed: Path, target: Path) -> None:
    target.mkdir()
    for part in _PARTS:
        body = pa.input_stream(packed / f"{part}.tar.br", compression="brotli")
        with body, tarfile.open(fileobj=body, mode="r|") as archive:
            archive.extractall(target / part, filter="data")
    body = pa.input_stream(packed / "chromium.br", compression="brotli")
    with body, (target / "chromium").open("wb") as program:
        while block := body.read(1 << 22):
            program.write(block)
    (target / "chromium").chmod(0o755)


class Chromium:
    """A running browser with one page, as a context manager."""

    def __init__(self, directory: Path) -> None:
        """Args: directory: gets its profile and what it prints."""
        self._directory = directory
        self._number = 0
        self._events: deque[dict[str, Any]] = deque()
        self._session: str | None = None
        self._unread = b""

    def __enter__(self) -> Self:
        home = chromium()
        theirs_in, ours_out = os.pipe()
        ours_in, theirs_out = os.pipe()
        self._out, self._in = ours_out, ours_in
        self._waiting = select.poll()  # ``select`` knows no more than 1024 descriptors
        self._waiting.register(ours_in)
        arguments = [
            "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
            "--hide-scrollbars", "--no-first-run", "--disable-background-networking", "--disable-component-update",
            f"--user-data-dir={self._directory / 'profile'}", "about:blank",
        ]  # fmt: skip
        config = self._directory / "fonts.conf"
        directories = f"<dir>{home / 'fonts' / 'fonts'}</dir><cachedir>{self._directory / 'fonts'}</cachedir>"
        config.write_text(f"<?xml version='1.0'?>\n<fontconfig>{directories}</fontconfig>\n", encoding="utf-8")
        fonts = {"FONTCONFIG_FILE": str(config), "HOME": str(self._directory)}
        libraries = os.pathsep.join([str(home / "al2023" / "lib"), str(home / "swiftshader")])
        environment = {**os.environ, **fonts, "LD_LIBRARY_PATH": libraries, "TZ": "UTC"}
        begin = [sys.executable, "-I", "-S", "-c", _BEGIN, str(os.getpid()), str(theirs_in), str(theirs_out)]
        with (self._directory / "chromium.log").open("wb") as log:
            self._process = subprocess.Popen(
                [*begin, str(home / "chromium"), *arguments], pass_fds=(theirs_in, theirs_out), env=environment,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        for each in (theirs_in, theirs_out):
            os.close(each)
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        return self

    def __exit__(self, *_: object) -> None:
        processes.end(self._process)
        for each in (self._out, self._in):
            os.close(each)

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One request of the DevTools protocol, and its answer."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": params}
        if self._session is not None:
            request["sessionId"] = self._session
        os.write(self._out, json.dumps(request).encode() + b"\0")
        while (answer := self._next()).get("id") != self._number:
            self._events.append(answer)
        assert "error" not in answer, (method, answer["error"])
        return dict(answer["result"])

    def show(self, page: Path | str, *, width: int, height: int = 900, is_dark: bool = False) -> None:
        """Load a file or an address in a window of this size, for a user who likes it light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self._events.clear()
        self.call("Page.navigate", url="about:blank")
        self._wait_for("Page.loadEventFired")
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        self._wait_for("Page.loadEventFired")

    def ask(self, expression: str) -> Any:
        """The value of a JavaScript expression, as JSON has it."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, x: float, y: float) -> None:
        """The mouse goes there and clicks."""
        self._mouse("mouseMoved", x, y)
        for kind in ("mousePressed", "mouseReleased"):
            self._mouse(kind, x, y, button="left", clickCount=1)

    def drag(self, start: tuple[float, float], end: tuple[float, float]) -> None:
        """The mouse presses at one place, goes to another and lets go."""
        self._mouse("mouseMoved", *start)
        self._mouse("mousePressed", *start, button="left", buttons=1, clickCount=1)
        self._mouse("mouseMoved", *end, button="left", buttons=1)
        self._mouse("mouseReleased", *end, button="left", clickCount=1)

    def turn_wheel(self, x: float, y: float, by: float, *, with_control: bool = False) -> None:
        """The wheel turns at a place."""
        self._mouse("mouseWheel", x, y, deltaX=0, deltaY=by, modifiers=2 if with_control else 0)

    def press(self, key: str) -> None:
        """A key by its name, ``Escape``."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def screenshot(self) -> bytes:
        """What the window shows, as PNG."""
        return base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"])

    def complaints(self) -> list[str]:
        """What went wrong on the page since it was loaded: exceptions of scripts, files that are not there."""
        self.ask("0")  # what was said before it has arrived
        found = [each for each in self._events if each["method"] in ("Runtime.exceptionThrown", "Log.entryAdded")]
        return [json.dumps(each["params"]) for each in found]

    def _mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def _wait_for(self, method: str) -> None:
        while not any(each.get("method") == method for each in self._events):
            self._events.append(self._next())
        self._events = deque(each for each in self._events if each.get("method") != method)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            found = os.read(self._in, 1 << 20) if self._waiting.poll(_PATIENCE_S * 1000) else b""
            assert found, (self._directory / "chromium.log").read_text()
            self._unread += found
        message, _, self._unread = self._unread.partition(b"\0")
        return dict(json.loads(message))
