"""``fluvial lineage``: the same graph as text, as JSON, and as pictures."""

import json
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from PIL import Image

from engine import Catalog
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_INVALID
from engine.lineage.graph.lateness import TableCommits, lateness
from engine.lineage.lineage import lineage_of
from engine.lineage.store.entities import DataLineage, LineageRecords, TableLineage
from engine.write.batch_target import write_locally
from tests.support.pictures import SVG, boxes_of, check_words, labels_of

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


@pytest.mark.sweep
def test_the_terminal_shows_both_directions(run: Run) -> None:
    """LN-03, LN-04: what a table is made of, and what is made of it, with the newest snapshot and barrier of each."""
    reported = run("db.table3").splitlines()
    time = "2026-11-21 12:00:00"
    assert reported == [
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
    check_words((tmp_path / "g.svg").read_text(), "table", "job")

    sections = targets(tmp_path / "g.html")
    assert len(sections) == 7
    closer = [{each.what for each in labels_of(section)} for section in sections.values()]
    assert any({"job1#3", "db.table3@3", "job2#2", "db.table3@2"} <= words for words in closer)
    assert not any("db.table1@1" in words for words in closer)  # only the newest two
    [loop] = [words for words in closer if "job loop" in words]
    assert "no snapshot or barrier of it is recorded" in loop


def targets(page: Path) -> dict[str, ET.Element]:
    """The sections of a page: every link leads to one, every box is a link, words are in their boxes everywhere."""
    root = ET.fromstring(page.read_text().partition("\n")[2])
    sections = {each.get("id", ""): each for each in root.iter("section")}
    links = [each.get("href", "") for each in root.iter(f"{SVG}a")]
    assert sorted(links) == sorted(f"#{name}" for name in sections)
    assert {each.get("href") for each in root.iter("a")} == {"#graph"}
    assert any(each.get("id") == "graph" for each in root.iter("div"))
    assert [[each.get("id") for each in nav] for nav in root.iter("nav")] == [["zoom"]], "buttons cover no box"
    first, *others = root.iter(f"{SVG}svg")
    assert len(boxes_of(first, "table", "job")) == len(links)
    for svg in (first, *others):
        check_words(ET.tostring(svg, encoding="unicode"), "table", "job")
    return sections


@pytest.mark.sweep
def test_the_whole_catalog(run: Run, tmp_path: Path) -> None:
    """LN-03: without a table, every job with what it reads and writes; and every picture of it."""
    reported = run().splitlines()
    assert reported[:4] == [
        "job1  barrier 3, 2026-11-21 12:00:00",
        "  reads  db.table1",
        "  reads  db.table2",
        "  writes db.table3",
    ]
    assert "loop" in reported
    paths = [tmp_path / f"all.{kind}" for kind in ("svg", "html", "png")]
    run("--svg", str(paths[0]), "--html", str(paths[1]), "--png", str(paths[2]))
    check_words(paths[0].read_text(), "table", "job")
    assert len(targets(paths[1])) == 7
    with Image.open(paths[2]) as image:
        assert image.format == "PNG"
    assert json.loads(run("--json"))["root"] is None


def test_a_job_has_all_its_inputs(run: Run, tmp_path: Path) -> None:
    """In the graph of one input the other one is drawn, too: dashed, as it is not made of that table."""
    assert "  job job1  barrier 3, 2026-11-21 12:00:00  also reads db.table2" in run("db.table1").splitlines()
    run("db.table1", "--html", str(tmp_path / "g.html"))
    sections = targets(tmp_path / "g.html")
    found = [{each.what for each in labels_of(one)} for one in sections.values()]
    [job] = [words for words in found if "job job1" in words]
    assert {"db.table1@3", "db.table2@3", "job1#3", "db.table3@3"} <= job
    root = ET.fromstring((tmp_path / "g.html").read_text().partition("\n")[2])
    beside = [each.get("class") for each in root.iter(f"{SVG}rect") if "beside" in each.get("class", "")]
    assert beside == ["table beside"]
    assert json.loads(run("db.table1", "--json"))["nodes"][0]["further_inputs"] == ["db.table2"]


def test_the_page_of_one_snapshot_has_links(run: Run, tmp_path: Path) -> None:
    run("db.table3", "--snapshot", "2", "--html", str(tmp_path / "g.html"))
    sections = targets(tmp_path / "g.html")
    assert len(sections) == 6
    texts = ["".join(each.itertext()) for each in sections.values()]
    assert any("fluvial diff db.table3 1 2" in text for text in texts)


def test_tables_that_are_gone_or_elsewhere_show_what_is_recorded(tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "w"))
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(
        LineageRecords(
            sink_tables=(TableLineage("load", "db", "gone", NOW),),
            sink_snapshots=tuple(DataLineage("load", number, "db", "gone", 100 + number, NOW) for number in range(50)),
        )
    )
    page = tmp_path / "g.html"
    command = ["lineage", "db.gone", "--warehouse", catalog.warehouse, "--html", str(page), "--last", "3"]
    assert run_command(command) == 0
    words = [{each.what for each in labels_of(one)} for one in targets(page).values()]
    newest = {"load#47", "load#48", "load#49", "db.gone@147", "db.gone@148", "db.gone@149"}
    assert all(newest <= each for each in words)
    assert not any("load#46" in each for each in words)


@pytest.mark.sweep
def test_batches_are_named_by_their_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No barrier of 19 digits is shown to people; scripts get it."""
    catalog = Catalog(str(tmp_path / "w"))
    table = catalog.create_table("db.t", pa.schema([("id", pa.int64())]), primary_key=["id"])
    table.write(pa.table({"id": [1]}), options={"pipeline.name": "load"})
    place = ["--warehouse", catalog.warehouse]
    page = tmp_path / "g.html"
    for command in (["db.t"], ["db.t", "--snapshot", "1"], []):
        assert run_command(["lineage", *command, *place]) == 0
        shown = capsys.readouterr().out
        assert re.search(r"load( batch \d\d:\d\d:\d\d)?  (batch, )?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", shown)
        assert not re.search(r"\d{19}", shown)
        assert run_command(["lineage", *command, *place, "--html", str(page)]) == 0
        targets(page)
        found = [each.what for each in labels_of(ET.fromstring(page.read_text().partition("\n")[2]))]
        assert any(re.fullmatch(r"load batch \d\d:\d\d:\d\d", words) for words in found)
        assert not any(re.search(r"\d{19}", words) for words in found)
    assert run_command(["lineage", "db.t", "--snapshot", "1", *place, "--json"]) == 0
    assert re.search(r"load#\d{19}", capsys.readouterr().out)


@pytest.mark.sweep
def test_lateness_is_of_each_upstream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """LN-04: which upstream is how many commits ahead of a job; a compaction brings no rows and does not count."""
    catalog = Catalog(str(tmp_path / "w"))
    for name in ("slow", "fast"):
        table = catalog.create_table(f"db.{name}", pa.schema([("id", pa.int64())]), primary_key=["id"])
        for key in range(3):
            table.write(pa.table({"id": [key]}), options={"pipeline.name": "load"})
        table.compact(full=True)
    lineage = lineage_of(catalog)
    assert lineage is not None
    lineage.store(
        LineageRecords(
            source_tables=(TableLineage("join", "db", "slow", NOW), TableLineage("join", "db", "fast", NOW)),
            source_snapshots=(
                DataLineage("join", 7, "db", "slow", 1, NOW),
                DataLineage("join", 7, "db", "fast", 3, NOW),
            ),
        )
    )
    place = ["--warehouse", catalog.warehouse]
    assert run_command(["lineage", *place]) == 0
    reported = capsys.readouterr().out.splitlines()
    assert "  reads  db.fast" in reported
    [late] = [line for line in reported if "behind" in line]
    assert re.fullmatch(r"  reads  db\.slow  2 snapshots, \d+ (s|min) behind", late)
    page = tmp_path / "g.html"
    assert run_command(["lineage", "db.slow", *place, "--html", str(page), "--svg", str(tmp_path / "g.svg")]) == 0
    targets(page)
    svg = ET.parse(tmp_path / "g.svg").getroot()
    assert [each.get("class") for each in svg.iter(f"{SVG}polyline") if "lateness" in each.get("class", "")] == [
        "lateness edge"
    ]
    assert any(re.match(r"db\.slow: 2 snapshots, \d+ (s|min) behind", each.what) for each in labels_of(svg))
    capsys.readouterr()
    assert run_command(["lineage", "db.slow", *place, "--json"]) == 0
    edges = {(each["from"], each["to"]): each for each in json.loads(capsys.readouterr().out)["edges"]}
    assert edges["db.slow", "join"]["snapshots_behind"] == 2


@pytest.mark.parametrize(
    ("read_id", "is_whole", "expected"),
    [
        (7, True, ""),
        (5, True, "1 snapshot, 3 s behind"),
        (0, True, "3 snapshots, 9 s behind"),
        (0, False, "3+ snapshots, 9 s behind"),
        (2, False, "3 snapshots, 9 s behind"),
    ],
)
def test_lateness_counts_commits_from_the_oldest_unread_one(read_id: int, is_whole: bool, expected: str) -> None:
    commits = TableCommits(times_ms={3: 1_000, 4: 5_000, 7: 7_000}, is_whole=is_whole)
    assert lateness(read_id, commits, 10_000).words == expected


def test_who_is_not_known_is_refused(warehouse: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["lineage", "db.nobody", "--warehouse", warehouse]) == EXIT_INVALID
    assert "db.nobody" in capsys.readouterr().err
    Catalog(str(tmp_path), options={"table-lineage": "false", "data-lineage": "false"}).create_database("db")
    assert run_command(["lineage", "db.t", "--warehouse", str(tmp_path)]) == EXIT_INVALID
    assert "records no lineage" in capsys.readouterr().err
