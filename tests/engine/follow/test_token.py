"""The token of ``fluvial tail --serve``: who does not send it reads nothing, and it is in no log, error or process."""

import http.client
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from engine.cli.app import run_command
from engine.cli.commands import tail
from engine.follow.server import ChangeServer
from lsm.errors import InvalidInputError
from tests.support.rows import id_rows
from tests.support.warehouses import new_table

TOKEN = "c0ffee.c0ffee~c0ffee/+-_42=="
REFUSED: list[dict[str, str]] = [
    {},
    {"Authorization": TOKEN},
    {"Authorization": "Bearer"},
    {"Authorization": "Bearer "},
    {"Authorization": f"Basic {TOKEN}"},
    {"Authorization": f"Bearer {TOKEN[:-1]}"},
    {"Authorization": f"Bearer {TOKEN}x"},
    {"Authorization": f"Bearer {TOKEN.upper()}"},
    {"Authorization": f"Bearer \xe9{TOKEN}"},
    {"Authorization": f"Bearer {'x' * 60_000}"},
    {"Cookie": TOKEN},
    {"Cookie": f"token={TOKEN}"},
    {"Cookie": f"fluvial-token={TOKEN}x"},
    {"Cookie": "fluvial-token"},
    {"Cookie": 'fluvial-token=""; =;;=; \xff="'},
    {"X-Token": TOKEN},
]
ADMITTED = [
    {"Authorization": f"Bearer {TOKEN}"},
    {"Authorization": f"bearer   {TOKEN} "},
    {"Cookie": f"fluvial-token={TOKEN}"},
    {"Cookie": f"a=b; fluvial-token=old; fluvial-token={TOKEN}; c"},
    {"Authorization": "Basic eDp5", "Cookie": f"fluvial-token={TOKEN}"},
]


def opened_by_no_one(start: Any, quiet_s: float) -> Any:
    raise AssertionError(start)


@pytest.fixture
def server() -> Iterator[ChangeServer]:
    with ChangeServer(("127.0.0.1", 0), opened_by_no_one, page=b"the page", token=TOKEN) as running:
        yield running


def reply_to(server: ChangeServer, path: str, headers: dict[str, str], method: str = "GET") -> tuple[int, str, str]:
    """Status, how to log in, and the lines to the first rows."""
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        said = answer.readline()
        if path != "/":
            for line in iter(answer.readline, b""):
                said += line
                if line.endswith(b"}]\n"):
                    break
        return answer.status, answer.headers.get("WWW-Authenticate", ""), said.decode()


def test_who_does_not_send_the_token_reads_no_change(server: ChangeServer, caplog: pytest.LogCaptureFixture) -> None:
    """By whatever path; the page is for all, as it has no rows. No stream is opened."""
    for headers in REFUSED:
        for path in ("/changes", f"/changes?token={TOKEN}", "/changes?from=full"):
            assert reply_to(server, path, headers)[:2] == (401, "Bearer"), headers
        assert reply_to(server, "/changes", headers, "HEAD") == (401, "Bearer", "")
        assert reply_to(server, "/", headers)[::2] == (200, "the page")
        assert reply_to(server, "/changes", {**headers, "Host": "evil.example"})[0] == 403
    assert not caplog.records


def test_who_sends_the_token_reads_the_changes(tmp_path: Path) -> None:
    table = new_table(tmp_path)
    table.write(id_rows([41]))

    def open_stream(start: Any, quiet_s: float) -> Any:
        return table.stream(start or "full", idle_s=quiet_s)

    with ChangeServer(("127.0.0.1", 0), open_stream, token=TOKEN) as server:
        for headers in ADMITTED:
            status, _, said = reply_to(server, "/changes", headers)
            assert status == 200
            assert '"id":41' in said.replace(" ", "")


def test_no_log_has_a_token(server: ChangeServer, caplog: pytest.LogCaptureFixture) -> None:
    """Not that of the server, and none that a client has sent; nor where a request fails."""
    caplog.set_level("DEBUG")
    for headers in (*ADMITTED, *REFUSED):
        with suppress(http.client.HTTPException, OSError):
            reply_to(server, f"/changes?token={TOKEN}", headers)
    assert "request: client=" in caplog.text
    assert "a request failed: client=" in caplog.text
    assert not [part for part in (TOKEN, TOKEN.upper(), TOKEN[:-1], "fluvial-token") if part in caplog.text]


def test_a_token_in_the_command_or_that_can_be_guessed_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a word of it."""
    for text in ("", "short", "x" * 15, "x" * 5000, f"{TOKEN};", f"{TOKEN} x", f"{TOKEN}\n", "é" * 20):
        with pytest.raises(InvalidInputError, match=r"not a token: characters=\d+ expected=.* fix=") as said:
            ChangeServer(("127.0.0.1", 0), opened_by_no_one, token=text)
        assert not text or text not in str(said.value)
    table = new_table(tmp_path)
    command = ["tail", table.name, "--warehouse", str(tmp_path)]
    monkeypatch.setenv("GUESSED", "guessed")
    for given in (TOKEN, "$GUESSED", "${GUESSED}", f"${{file:{tmp_path}/missing}}", "${GUESSED}x"):
        assert run_command([*command, "--serve", "127.0.0.1:0", "--token", given]) == 2
    assert run_command([*command, "--token", "${GUESSED}"]) == 2
    assert run_command([*command, "--allow-host", "tables.example"]) == 2
    error = capsys.readouterr().err
    assert error.count("fix=") == 7
    assert TOKEN not in error
    assert "guessed" not in error


@pytest.mark.parametrize("place", ["file", "environment"])
def test_the_command_gives_its_server_what_the_reference_stands_for(
    place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = new_table(tmp_path)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    monkeypatch.setenv("TAIL_TOKEN", TOKEN)
    made: list[ChangeServer] = []

    class Server(ChangeServer):
        def __init__(self, *given: Any, **named: Any) -> None:
            super().__init__(*given, **named)
            made.append(self)

    monkeypatch.setattr(tail, "ChangeServer", Server)
    monkeypatch.setattr(tail, "stop_on_signals", lambda stop, _: nullcontext(stop.set()))
    reference = f"${{file:{tmp_path}/token}}" if place == "file" else "${TAIL_TOKEN}"
    command = ["tail", table.name, "--warehouse", str(tmp_path), "--serve", "0.0.0.0:0", "--token", reference]
    assert run_command(command) == 0
    said = capsys.readouterr().err
    assert "without TLS" in said
    assert TOKEN not in said
    assert made[0].admission.admits(f"Bearer {TOKEN}", "")
    assert not made[0].admission.admits("", "")
