"""The console: who may ask, what every answer has, and that it changes nothing."""

import http.client
import json
import re
import shutil
import sys
import threading
from contextlib import closing
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from engine import Catalog, procedures
from engine.cdc.state import CdcTableState, Parked, StateFiles
from engine.cli.app import run_command
from engine.monitor.table_probe import CommitFacts
from engine.ui.console import Console, Kept, TableFacts, minutes_of
from engine.ui.pages import warehouse_page
from filestore.snapshot.snapshot import CommitKind, Snapshot
from filestore.tag.tags import create_tag
from lsm.errors import InvalidInputError
from tests.support.consoles import TOKEN, Client, cells, running
from tests.support.rows import id_rows
from tests.support.warehouses import new_table

SCRIPT = "<script>alert(1)</script>"
NOW_MS = 1_800_000_000_000
SNAPSHOT = Snapshot(
    id=1, schema_id=0, base_manifest_list="b", delta_manifest_list="d", commit_user="u", commit_identifier=1,
    commit_kind=CommitKind.APPEND, time_ms=NOW_MS,
)  # fmt: skip


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tables with everything that pages show, and two that no catalog lists as it lists others."""
    place = tmp_path_factory.mktemp("warehouse")
    catalog = Catalog(str(place), options={"table-lineage": "true", "data-lineage": "true"})
    orders = new_table(catalog, name="shop.orders")
    for number in range(3):
        orders.write(id_rows([number, 7], SCRIPT), options={"pipeline.name": f"job {SCRIPT}"})
    create_tag(orders.store, "end of day & more")
    with orders.stream("full", consumer="copy", follow=False) as stream:
        assert sum(changes.rows.num_rows for changes in stream)
    new_table(catalog, name="shop.empty")
    new_table(catalog, name="other.naïve 表").write(id_rows([1]))
    broken = place / "shop.db" / "broken" / "schema"
    broken.mkdir(parents=True)
    (broken / "schema-0").write_text("{")
    shutil.copytree(place / "shop.db" / "orders", place / "shop.db" / "<img src=x onerror=alert(1)>")
    return place


@pytest.fixture(scope="module")
def client(warehouse: Path) -> Any:
    with running(warehouse) as found:
        yield found


MORE = (
    "/table/shop/orders/data",
    "/table/shop/orders/data?at=2&columns=v,id&filter=id%3C5",
    "/table/shop/orders/data?at=3&before=1",
    "/table/shop/empty/data",
    "/table/shop/orders/data?time=1",
    "/table/shop/orders/changes",
    "/table/shop/orders/changes?columns=id&filter=id%3C5",
    "/lineage",
    "/what-if",
    "/what-if?table=shop.orders&snapshot=2",
    "/jobs",
)
PAGES = (
    "/",
    "/?find=o&sort=size",
    "/table/shop/orders",
    "/table/other/na%C3%AFve%20%E8%A1%A8",
    "/table/shop/empty",
    *MORE,
)


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_shown_to_who_has_the_token(client: Client, path: str) -> None:
    assert client.ask(path).status == 200
    for headers in ({}, {"Cookie": f"{client.cookie}=another"}, {"Cookie": f"fluvial-token={TOKEN}"}):
        refused = client.ask(path, headers=headers)
        assert (refused.status, "token" in refused.text) == (401, True)
        assert "orders" not in refused.text
    assert client.ask(f"{path.partition('?')[0]}?token=another", headers={}).status == 401


def test_the_token_leaves_the_address(client: Client) -> None:
    answer = client.ask(f"/?find=a+b&token={TOKEN}&sort=size", headers={})
    assert (answer.status, answer.headers["location"], answer.text) == (303, "/?find=a+b&sort=size", "")
    assert answer.headers["set-cookie"] == f"{client.cookie}={TOKEN}; HttpOnly; Path=/; SameSite=strict"
    elsewhere = client.ask(f"//evil.example/?token={TOKEN}", headers={})
    assert elsewhere.headers["location"] == "/evil.example/"


def test_a_page_of_elsewhere_that_leads_its_name_here_is_refused(client: Client) -> None:
    for host, status in (("evil.example", 403), ("localhost:1", 200), ("127.0.0.1", 200), ("", 403)):
        assert client.ask("/", headers={**client.admitted, "Host": host}).status == status


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_but_reading_is_answered(client: Client, method: str) -> None:
    for path in PAGES:
        answer = client.ask(path, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_the_head_of_a_page_is_that_of_the_page(client: Client) -> None:
    whole, head = client.ask("/table/shop/orders"), client.ask("/table/shop/orders", method="HEAD")
    assert (head.status, head.text, head.tag) == (200, "", whole.tag)


@pytest.mark.parametrize("path", [*PAGES, "/console.css", "/live.js", "/nowhere", "/?sort=x"])
def test_every_answer_forbids_scripts_of_others_and_is_kept_nowhere(client: Client, path: str) -> None:
    for headers in (client.admitted, {}, {**client.admitted, "Host": "evil"}):
        answer = client.ask(path, headers=headers)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; script-src 'self'; ")
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
    if not path.endswith((".css", ".js")):
        for name, attributes in tags(client.ask(path).text):
            assert name != "style"
            assert name != "script" or attributes == {"src": "/live.js", "defer": None}
            assert [each for each in attributes if each == "style" or each.startswith("on")] == []
            assert re.match(r"[/#]|data:,$", attributes.get("href") or "/")


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    """The elements of a page, with their attributes, as a browser reads them."""
    found: list[tuple[str, dict[str, str | None]]] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            found.append((tag, dict(attrs)))

    Reader().feed(text)
    return found


def test_hostile_names_and_values_are_text(client: Client) -> None:
    listed = client.ask("/").text
    assert escape("shop.<img src=x onerror=alert(1)>") in listed
    assert "<img" not in listed
    page = client.ask("/table/shop/orders").text
    assert escape(f"job {SCRIPT}") in page
    assert SCRIPT not in page
    assert "end of day &amp; more" in page
    odd = "/table/%3Cimg%20src%3Dx%3E/%22%27%00"
    assert (client.ask(odd).status, "<img" in client.ask(odd).text) == (404, False)
    assert "<b>" not in client.ask("/?find=%22%3E%3Cb%3E").text


def test_a_table_that_cannot_be_read_says_so_and_others_are_shown(client: Client) -> None:
    page = client.ask("/")
    [row] = [each for each in page.text.split("<tr>") if "shop.broken<" in each]
    assert 'class="bad"' in row
    assert "Traceback" not in page.text
    [good] = [each for each in page.text.split("<tr>") if "shop.orders<" in each]
    assert 'class="bad"' not in good
    assert client.ask("/table/shop/broken").status in (404, 500)
    assert client.ask("/table/shop/none").status == 404


def test_a_page_of_a_table_has_what_commands_say(client: Client, warehouse: Path, capsys: Any) -> None:
    assert run_command(["doctor", "shop.orders", "--json", "--warehouse", str(warehouse)]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    page = client.ask("/table/shop/orders").text
    for each in found:
        assert escape(each["check"]) in page
        assert each["fix"] is None or escape(each["fix"], quote=True).replace("&#x27;", "&#39;") in page
    assert "consumer copy" in page
    assert "<dt>oldest snapshot</dt>" in page
    assert "<dt>expires</dt><dd>after 1.0 d, but for the newest 10</dd>" in page
    assert page.count("<svg") == 2, "the trees, and the last minutes"
    bars = re.findall(r'<a href="(/table/shop/orders/data\?at=\d)">\s*<rect', page)
    assert bars == [f"/table/shop/orders/data?at={number}" for number in (1, 2, 3)]


def test_a_search_and_an_order_leave_tables_as_they_are(client: Client) -> None:
    assert client.ask("/?find=ORD").links("/table/") == ["/table/shop/orders"]
    by_rows = client.ask("/?sort=rows").links("/table/")
    assert by_rows[0] == "/table/shop/orders"
    assert sorted(by_rows) == sorted(client.ask("/").links("/table/"))
    assert client.ask("/?sort=nothing").status == 404


def tree(place: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of a directory, with its time and contents."""
    return {
        path.relative_to(place).as_posix(): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else b"")
        for path in sorted(place.rglob("*"))
    }


def test_no_page_writes_anything(client: Client, warehouse: Path) -> None:
    before = tree(warehouse)
    seen, left = set(), ["/"]
    while left:
        path = left.pop()
        seen.add(path)
        answer = client.ask(path)
        assert answer.status in (200, 404, 500)
        left += [each for each in {*answer.links()} - seen - {*left} if each not in ("/console.css", "/live.js")]
    assert len(seen) > 10
    assert tree(warehouse) == before


@pytest.mark.parametrize("path", ["/", "/table/db/t"])
def test_a_page_is_the_same_until_something_is_committed(tmp_path: Path, path: str) -> None:
    table = new_table(tmp_path, name="db.t")
    table.write(id_rows([1]))
    with running(tmp_path) as client:
        first = client.part(path)
        assert first.status == 200
        assert "<html" not in first.text
        assert client.ask(path).text.count(first.text) == 1
        again = client.part(path, first.tag)
        assert (again.status, again.text) == (304, "")
        table.write(id_rows([1, 2]))
        changed = client.part(path, first.tag)
        assert (changed.status, changed.tag != first.tag) == (200, True)


@pytest.mark.sweep
def test_a_page_of_a_thousand_tables_reads_of_those_that_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first look reads a hundred tables, and a second one a few small files of each."""
    catalog = Catalog(str(tmp_path))
    new_table(catalog, name="db.t0").write(id_rows([1]))
    for number in range(1, 1000):
        shutil.copytree(tmp_path / "db.db" / "t0", tmp_path / "db.db" / f"t{number}")
    asked: list[str] = []
    measured = Console._measured

    def counted(console: Console, name: str) -> TableFacts:
        asked.append(name)
        return measured(console, name)

    monkeypatch.setattr(Console, "_measured", counted)
    console = Console(catalog, patience_s=100)
    try:
        first = warehouse_page(console, {})
        assert len(first.sections[0].rows) == 100
        assert "1,000 tables, page 1 of 10" in first.sections[0].note
        assert (len(asked), first.is_partial) == (100, False)
        costs = {each.name: each.at_s for each in console.facts(asked[:100]).values()}
        warehouse_page(console, {})
        assert {each.name: each.at_s for each in console.facts(asked[:100]).values()} == costs, "nothing was measured"
        last = warehouse_page(console, {"page": "10"})
        assert len({*asked}) == 200
        assert [cell.text for cell in last.sections[0].rows[-1][:1]] == ["db.t999"]
    finally:
        console.close()


def test_a_console_without_its_packages_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in [each for each in sys.modules if each.startswith(("engine.ui", "starlette"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "starlette.applications", None)
    assert run_command(["ui", "--warehouse", str(tmp_path)]) == 2
    assert "fix=\"pip install 'fluvial[ui]'\"" in capsys.readouterr().err


def test_the_page_does_not_wait_for_a_slow_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not known yet is said, and comes with a later look."""
    new_table(tmp_path, name="db.t").write(id_rows([1]))
    go, measured = threading.Event(), Console._measured
    monkeypatch.setattr(Console, "_measured", lambda self, name: go.wait(100) and measured(self, name))
    console = Console(Catalog(str(tmp_path)), patience_s=0.01)
    try:
        page = warehouse_page(console, {})
        assert page.is_partial
        assert "1 not looked at yet" in page.sections[0].note
        go.set()
        while warehouse_page(console, {}).is_partial:
            pass
    finally:
        console.close()


def test_connections_that_send_nothing_hold_nothing_up(client: Client) -> None:
    """And what is no request is answered as such."""
    with closing(http.client.HTTPConnection("127.0.0.1", client.port, timeout=60)) as idle:
        idle.connect()
        assert client.ask("/").status == 200
        assert idle.sock is not None
        idle.sock.sendall(b"\x00\r\n\r\n")
        assert b"400" in idle.sock.recv(100)


def test_rows_are_those_of_a_version_a_filter_and_columns(client: Client) -> None:
    """As commands read them; a slider has the snapshots, and a comparison the kinds."""
    page = client.ask("/table/shop/orders/data")
    assert 'type="range" name="at" value="3" min="1" max="3"' in page.text
    assert "/table/shop/orders/data?at=2" in page.links()
    assert ">files: +1 −0<" in page.text
    assert escape(f"job {SCRIPT}") in page.text
    assert "end of day &amp; more" in page.text, "the tag of what is shown"
    assert (
        cells(page.text) == [["7", SCRIPT], ["0", SCRIPT], ["1", SCRIPT], ["2", SCRIPT]] or len(cells(page.text)) == 4
    )
    assert {*map(tuple, cells(client.ask("/table/shop/orders/data?at=1&columns=id").text))} == {("0",), ("7",)}
    assert cells(client.ask("/table/shop/orders/data?at=end+of+day+%26+more&filter=id%3D2&columns=id").text) == [["2"]]
    changes = cells(client.ask("/table/shop/orders/data?at=2&before=1&columns=id").text)
    assert sorted(changes) == [["+I", "1"]]
    for wrong in (
        "at=99",
        "filter=nope%3D1",
        "columns=nope",
        "before=1&columns=nope",
        "filter=id+%3C",
        "before=1&filter=id%3D2",
    ):
        answer = client.ask(f"/table/shop/orders/data?{wrong}")
        assert (answer.status, 'class="bad"' in answer.text, cells(answer.text)) == (200, True, []), wrong


def test_the_lineage_leads_to_tables_and_records_nothing(tmp_path: Path) -> None:
    """The store is read as a copy: what it has lost is drawn from snapshots, and the store stays as it is."""
    catalog = Catalog(str(tmp_path), options={"table-lineage": "true", "data-lineage": "true"})
    new_table(catalog, name="shop.orders").write(id_rows([1]), options={"pipeline.name": f"job {SCRIPT}"})
    lost = [*tmp_path.rglob("lineage.sqlite*")]
    assert lost
    for path in lost:
        path.unlink()
    before = tree(tmp_path)
    with running(tmp_path) as client:
        page = client.ask("/lineage")
        assert "/table/shop/orders" in page.links("/table/")
        assert escape(f"job {SCRIPT}") in page.text
    assert tree(tmp_path) == before


def test_what_follows_from_a_snapshot_is_what_commands_say(tmp_path: Path) -> None:
    """The jobs that read it, what they wrote, and the commands of a recovery; the page records nothing."""
    catalog = Catalog(str(tmp_path), options={"table-lineage": "true", "data-lineage": "true"})
    raw, clean = new_table(catalog, name="shop.raw"), new_table(catalog, name="shop.clean")
    for number in range(3):
        raw.write(id_rows([number]), options={"pipeline.name": "load"})
    clean.write(id_rows([1]))
    procedures.state_lineage(catalog, job=SCRIPT, reads="shop.raw@2", writes="shop.clean@1")
    impact, plan = procedures.impact(raw, 2).to_pylist(), procedures.recovery_plan(raw, 1).to_pylist()
    before = tree(tmp_path)
    with running(tmp_path) as client:
        page = client.ask("/what-if?table=shop.raw&snapshot=2")
        assert page.status == 200
        assert escape(SCRIPT) in page.text
        assert SCRIPT not in page.text
        assert [each["command"] for each in impact] == ["fluvial diff shop.clean 0 latest"]
        assert impact[0]["command"] in page.text
        assert len(plan) > 3
        assert [row[-1] for row in cells(page.text)] == [each["command"] for each in plan]
        assert "/what-if?table=shop.clean&snapshot=1" in page.links()
        assert cells(client.ask("/what-if?table=shop.clean&snapshot=1").text) == [], "nothing was correct before"
        for wrong in ("table=shop.none&snapshot=1", "table=shop.raw&snapshot=-1", "table=shop.raw&snapshot=1e9"):
            assert client.ask(f"/what-if?{wrong}").status == 404, wrong
    assert tree(tmp_path) == before


def test_changes_come_as_they_are_committed_and_each_once(tmp_path: Path) -> None:
    """From the first look on, newest first, with their kinds; other browsers see the same."""
    table = new_table(tmp_path, name="db.t")
    table.write(id_rows([1]))
    path = "/table/db/t/changes"
    with running(tmp_path) as client:
        first = client.part(path)
        assert ("none yet" in first.text, cells(first.text)) == (True, [])
        assert client.part(path, first.tag).status == 304
        table.write(id_rows([2, 3], SCRIPT))
        changed = client.part(path, first.tag)
        assert SCRIPT not in changed.text
        assert sorted(row[1:] for row in cells(changed.text)) == [["+I", "2", SCRIPT], ["+I", "3", SCRIPT]]
        table.write(id_rows([4]))
        assert cells(client.ask(path).text)[0][1:3] == ["+I", "4"]
        assert len(cells(client.ask(path).text)) == 3
        assert cells(client.ask(f"{path}?columns=id&filter=id%3D5").text) == [], "another choice begins now"
        table.write(id_rows([5, 6]))
        assert [row[1:] for row in cells(client.ask(f"{path}?columns=id&filter=id%3D5").text)] == [["+I", "5"]]
        assert 'class="bad"' in client.ask(f"{path}?filter=id+%3C").text


def test_changes_are_bounded_and_say_what_they_leave_out(tmp_path: Path) -> None:
    table = new_table(tmp_path, name="db.t")
    table.write(id_rows([1]))
    with running(tmp_path) as client:
        client.ask("/table/db/t/changes")
        table.write(id_rows(range(20_000)))
        page = client.ask("/table/db/t/changes").text
        assert "some came too fast to be shown" in page
        assert len(cells(page)) == 200
        client.ask("/table/db/t/changes")
        table.write(id_rows([77]))
        assert cells(client.ask("/table/db/t/changes").text)[0][1:3] == ["+I", "77"], "it continues with the newest"


def test_a_slider_goes_back_to_a_time(tmp_path: Path) -> None:
    table = new_table(tmp_path, name="db.t")
    for number in (1, 2):
        table.write(id_rows([number]))
    first, last = (table.store.snapshots.read(number) for number in (1, 2))
    snapshot = tmp_path / "db.db" / "t" / "snapshot" / "snapshot-1"
    snapshot.write_text(snapshot.read_text().replace(str(first.time_ms), str(first.time_ms - 60_000)))
    with running(tmp_path) as client:
        page = client.ask("/table/db/t/data").text
        least, most = -(-(first.time_ms - 60_000) // 1000), -(-last.time_ms // 1000)
        assert f'type="range" name="time" value="{most}" min="{least}" max="{most}"' in page
        assert [row[0] for row in cells(client.ask(f"/table/db/t/data?time={least + 1}").text)] == ["1"]
        assert sorted(row[0] for row in cells(client.ask(f"/table/db/t/data?time={most}").text)) == ["1", "2"]


def test_what_is_kept_is_bounded_also_of_questions_that_fail() -> None:
    """What was asked for last stays; an answer that was an error is asked again, and leaves nothing."""
    kept = Kept(2)

    def fail() -> None:
        raise InvalidInputError("no")

    for number in range(10):
        assert kept.get("often", 0, lambda: "first") == "first"
        assert kept.get(number, 0, lambda: "other") == "other"
        with pytest.raises(InvalidInputError):
            kept.get(("wrong", number), 0, fail)
    assert kept.get("often", 0, lambda: "second") == "first"
    assert len(kept._found) == len(kept._locks) == 2


def test_minutes_are_counted_once_however_often_a_table_is_looked_at() -> None:
    """Commits that a later look no longer sees stay counted; a rollback begins again."""

    def commits(*ids: int) -> list[CommitFacts]:
        found = [
            replace(SNAPSHOT, id=each, time_ms=NOW_MS - 60_000 * (9 - each), delta_record_count=10 * each)
            for each in ids
        ]
        return [CommitFacts(snapshot=each, added_bytes=0) for each in found]

    def known(commits: list[CommitFacts], before: TableFacts | None) -> TableFacts:
        minutes = minutes_of(commits, before, NOW_MS)
        return TableFacts(name="t", measured=commits[0].snapshot, minutes=minutes)

    first = known(commits(3, 2, 1), None)
    second = known(commits(4, 3), first)
    assert known(commits(4, 3), second).minutes == second.minutes
    found = [(each.commits, each.rows) for _, each in sorted(second.minutes.items())]
    assert found == [(1, 10), (1, 20), (1, 30), (1, 40)]
    assert [each.rows for _, each in sorted(known(commits(2), second).minutes.items())] == [20]
    assert minutes_of(commits(4), second, NOW_MS + 3_600_000) == {}


JOB = """
name: shop
warehouse: {place}
tables:
  web.visits: {{columns: {{visit: BIGINT}}, options: {{log.system: none}}}}
pipelines:
- name: visits
  source: {{format: json, options: {{path: "{place}/events"}}}}
  target: web.visits
  checkpoint: {place}/checkpoints/visits
cdc:
- name: crm
  database: crm
  source: {{options: {{subscribePattern: 'crm[.].*', kafka.bootstrap.servers: "127.0.0.1:1"}}}}
"""


def test_jobs_show_what_waits_and_what_to_do(tmp_path: Path) -> None:
    """A parked table with its reason and command; files and brokers that are away say so."""
    Catalog(str(tmp_path / "warehouse")).create_database("web")
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(place=tmp_path / "warehouse"))
    catalog = Catalog(str(tmp_path / "warehouse"))
    state = StateFiles(catalog.file_io, catalog.warehouse, "crm")
    state.put("orders", CdcTableState(parked=Parked(since_ms=1, reason=f"a bad {SCRIPT}", batch_id=3, offsets={})))
    with running(catalog, job_files=(str(job), str(tmp_path / "none.yaml"))) as client:
        before = tree(tmp_path)
        page = client.ask("/jobs")
        assert page.status == 200
        assert escape(f"a bad {SCRIPT}") in page.text
        assert "fluvial cdc resume orders" in page.text
        assert [row[:2] for row in cells(page.text)] == [["orders", "parked"]]
        assert "has not finished a batch" in page.text
        assert "the brokers do not answer" in page.text
        assert "none.yaml" in page.text
        assert tree(tmp_path) == before
    with running(catalog) as client:
        assert "fluvial ui --job FILE" in client.ask("/jobs").text
