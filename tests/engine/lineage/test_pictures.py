"""``fluvial lineage``: the same graph as text, as JSON, and as pictures."""

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest

from engine import Catalog
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_INVALID
from engine.lineage.lineage import lineage_of
from engine.lineage.store.entities import DataLineage, LineageRecords, TableLineage
from engine.write.batch_target import write_locally

SVG = "{http://www.w3.org/2000/svg}"
NOW = datetime(2026, 11, 21, 12, 0, 0)
Run = Callable[..., str]


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The seed's pipeline: job1 makes table3 of table1 and table2, job2 makes table4 of table3; loop makes itself."""
    catalog = Catalog(str(tmp_path_factory.mktemp("lineage")))
    for name in ("table1", "table2", "table3", "table4"):
        table = catalog.create_table(f"db.{name}", pa.schema([("id", pa.int64())]), primary_key=["id"])
        for key in range(3):
            write_locally(table.files, pa.table({"id": [key]}).to_batches())  # as another engine: it names no job
    lineage = lineage_of(catalog)
    assert lineage is not None
    reads = {"job1": ["table1", "table2"], "job2": ["table3"], "loop": ["table4"]}
    writes = {"job1": "table3", "job2": "table4", "loop": "table4"}
    for barrier in (1, 2, 3):
        lineage.store(
            LineageRecords(
                source_tables=tuple(TableLineage(job, "db", each, NOW) for job, of in reads.items() for each in of),
                sink_tables=tuple(TableLineage(job, "db", each, NOW) for job, each in writes.items()),
                source_snapshots=tuple(
                    DataLineage(job, barrier, "db", each, barrier, NOW)
                    for job, of in reads.items()
                    for each in of
                    if job != "loop"
                ),
                sink_snapshots=tuple(
                    DataLineage(job, barrier, "db", each, barrier, NOW) for job, each in writes.items() if job != "loop"
                ),
            )
        )
    return catalog.warehouse


@pytest.fixture
def run(warehouse: str, capsys: pytest.CaptureFixture[str]) -> Run:
    def run(*arguments: str) -> str:
        assert run_command(["lineage", "--warehouse", warehouse, *arguments]) == 0
        return capsys.readouterr().out

    return run


def test_the_terminal_shows_both_directions(run: Run) -> None:
    """LN-03, LN-04: what a table is made of, and what is made of it, with the newest snapshot and barrier of each."""
    told = run("db.table3").splitlines()
    time = "2026-11-21 12:00:00"
    assert told == [
        f"db.table3  snapshot 3, {time}",
        "made of",
        f"  job job1  barrier 3, {time}",
        f"    table db.table1  snapshot 3, {time}",
        f"    table db.table2  snapshot 3, {time}",
        "makes",
        f"  job job2  barrier 3, {time}",
        f"    table db.table4  snapshot 3, {time}",
        "      job loop",
        f"        table db.table4  snapshot 3, {time}  (see above)",
    ]
    assert "job2" not in run("db.table3", "--upstream")
    assert "job1" not in run("db.table3", "--downstream")
    assert "loop" not in run("db.table3", "--depth", "1")


def test_one_snapshot_and_its_barriers(run: Run) -> None:
    """LN-28, LN-29: by snapshot, and as JSON for scripts."""
    found = json.loads(run("db.table3", "--snapshot", "2", "--json"))
    assert found["root"] == "db.table3@2"
    assert {(each["from"], each["to"]) for each in found["edges"]} == {
        ("db.table1@2", "job1#2"),
        ("db.table2@2", "job1#2"),
        ("job1#2", "db.table3@2"),
        ("db.table3@2", "job2#2"),
        ("job2#2", "db.table4@2"),
    }


def test_a_compaction_in_between_breaks_no_way(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """LN-28, LN-29: a job read snapshot 9, which a compaction made of what another job wrote as 7; and far apart."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(
        LineageRecords(
            sink_tables=(TableLineage("clean", "db", "t", NOW), TableLineage("old", "db", "t", NOW)),
            source_tables=(TableLineage("report", "db", "t", NOW),),
            sink_snapshots=(
                *(DataLineage("clean", number, "db", "t", 5000 + number, NOW) for number in range(5)),
                DataLineage("old", 1, "db", "t", 2, NOW),
            ),
            source_snapshots=(DataLineage("report", 1, "db", "t", 5006, NOW),),
        )
    )
    assert run_command(["lineage", "db.t", "--snapshot", "5006", "--warehouse", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {(each["from"], each["to"]) for each in found["edges"]} == {
        ("clean#4", "db.t@5006"),
        ("old#1", "db.t@5006"),
        ("db.t@5006", "report#1"),
    }
    assert run_command(["lineage", "db.t", "--snapshot", "5001", "--warehouse", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {("clean#1", "db.t@5001"), ("db.t@5001", "report#1")} <= {(e["from"], e["to"]) for e in found["edges"]}


def test_pictures_have_every_node_and_zoom_to_snapshots(run: Run, tmp_path: Path) -> None:
    run("db.table3", "--svg", str(tmp_path / "g.svg"), "--html", str(tmp_path / "g.html"), "--last", "2")
    svg = ET.parse(tmp_path / "g.svg").getroot()
    names = {"".join(each.itertext()) for each in svg.iter(f"{SVG}text")}
    assert {"db.table1", "db.table2", "db.table3", "db.table4", "job1", "job2", "loop"} <= names
    assert len([each for each in svg.iter(f"{SVG}polyline")]) == 7
    boxes = [each for each in svg.iter(f"{SVG}rect") if each.get("class", "").split()[0] in ("table", "job")]
    corners = [(float(each.get("x", "")), float(each.get("y", ""))) for each in boxes]
    for at, (x1, y1) in enumerate(corners):
        assert all(abs(x1 - x2) >= 210 or abs(y1 - y2) >= 44 for x2, y2 in corners[:at]), "boxes lie on one another"

    page = ET.fromstring((tmp_path / "g.html").read_text().partition("\n")[2])
    sections = {each.get("id"): each for each in page.iter("section")}
    links = {each.get("href", "").removeprefix("#") for each in page.iter(f"{SVG}a")}
    assert links == set(sections)
    assert len(links) == 6  # all but loop, of which no barrier is known
    closer = [{"".join(text.itertext()) for text in each.iter(f"{SVG}text")} for each in sections.values()]
    assert any({"job1#3", "db.table3@3", "job2#2", "db.table3@2"} <= words for words in closer)
    assert not any("db.table1@1" in words for words in closer)  # only the newest two


def test_who_is_not_known_is_refused(warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["lineage", "db.nobody", "--warehouse", warehouse]) == EXIT_INVALID
    assert "db.nobody" in capsys.readouterr().err
    Catalog(str(tmp_path), options={"table-lineage": "false", "data-lineage": "false"}).create_database("db")
    assert run_command(["lineage", "db.t", "--warehouse", str(tmp_path)]) == EXIT_INVALID
    assert "records no lineage" in capsys.readouterr().err
