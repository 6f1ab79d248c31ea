"""Pictures of tables: valid, complete, nothing over anything else."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import Catalog
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_FAILED
from engine.drawing.model import FileBox, RunBoxes, TablePicture, picture_of
from engine.drawing.page import html_page, svg_page
from engine.drawing.svg import Canvas, shortened
from engine.drawing.terminal import run_cells, tree_lines
from engine.drawing.theme import level_class
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from tests.support.tables import KEY_SCHEMA, committable_of, key_table, memory_catalog, rows
from tests.support.vectors import golden_tables

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<b>&\"'\x01]]>"


def files_of(table: FileTable) -> list[str]:
    live = LiveFiles.latest(table.store)
    return [file.file_name for key in live.buckets() for file in live.files(key)]


def boxes(svg: str) -> list[ET.Element]:
    return [each for each in ET.fromstring(svg).iter(f"{SVG}rect") if each.get("class", "").startswith("f l")]


def check(table: FileTable, picture: TablePicture) -> None:
    """The laws of a picture of all buckets."""
    svg = svg_page(picture)
    drawn = boxes(svg)
    names = Counter((box.findtext(f"{SVG}title") or "").splitlines()[0] for box in drawn)
    assert names == Counter(files_of(table))
    lanes: defaultdict[float, list[tuple[float, float]]] = defaultdict(list)
    for box in drawn:
        x, y, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
        assert width > 0
        assert height > 0
        lanes[round(y + height, 1)].append((x, x + width))
    for lane in lanes.values():
        for left, right in pairwise(sorted(lane)):
            assert left[1] <= right[0] + 0.02, "boxes of a run, or of panels side by side, lie over each other"


@pytest.mark.parametrize("path", golden_tables(), ids=lambda path: path.name)
def test_every_file_is_drawn_once_and_none_over_another(path: Path) -> None:
    table = FileTable.open(f"db.{path.name}", str(path))
    check(table, picture_of(table.store))
    assert "<svg" in html_page(picture_of(table.store))


@pytest.mark.sweep
@pytest.mark.parametrize("days", [1, 3, 9, 20, 60])
def test_pictures_hold_one_bucket_and_many(days: int) -> None:
    table = key_table(
        schema=pa.schema([("day", pa.string()), *KEY_SCHEMA]),
        primary_key=("day", "id"),
        partition_by=("day",),
        bucket="2",
        **{"target-file-size": "1 b"},
    )
    for turn in range(3):
        ids = [turn + number for number in range(4)] * days
        data = {"day": [f"{day:03}" for day in range(days) for _ in range(4)], "id": ids, "v": ids}
        table.write(pa.table(data, schema=table.schema.arrow_schema))
        if turn == 1:
            table.compact(full=True)
    check(table, picture_of(table.store))


def test_names_are_escaped() -> None:
    """Names of partitions are users' text: whatever is in them, the picture is XML and shows them."""
    schema = pa.schema([("day", pa.string()), *KEY_SCHEMA])
    table = memory_catalog().create_table("db.t", schema, primary_key=["day", "id"], partition_by=["day"])
    table.write(pa.table({"day": [NASTY], "id": [1], "v": [1]}, schema=schema))
    key = memory_catalog().create_table("db.u", pa.schema([("id", pa.string())]), primary_key=["id"])
    key.write(pa.table({"id": [NASTY]}, schema=pa.schema([pa.field("id", pa.string(), nullable=False)])))
    for each in (table, key):
        texts = "".join(ET.fromstring(svg_page(picture_of(each.store))).itertext())
        assert "<b>&" in texts
        ET.fromstring(html_page(picture_of(each.store)).partition("\n")[2])


def test_whatever_is_written_is_xml() -> None:
    canvas = Canvas(100)
    canvas.label(0, 0, NASTY, size=10)
    canvas.rect(0, 0, 1, 1, kind=NASTY, tip=NASTY)
    root = ET.fromstring(canvas.finished(10, NASTY))
    assert "".join(root.itertext()).count("<b>&\"'\ufffd]]>") == 3


def test_a_limit_keeps_the_worst_buckets() -> None:
    table = key_table(bucket="4")
    for start in range(3):
        table.write(rows(*((key, start) for key in range(20 if start == 0 else 1))))
    picture = picture_of(table.store, bucket_limit=1)
    assert (len(picture.buckets), picture.bucket_count, len(picture.buckets[0].runs)) == (1, 4, 3)
    assert "the 1 of 4 buckets with the most runs" in svg_page(picture)


def test_history_shows_kinds_rows_and_the_log() -> None:
    table = key_table(bucket="1")
    for batch in range(5):
        table.new_commit("q").commit(
            committable_of(table, batch, rows((1, batch), (2, batch)), log_offsets={0: 3 * batch + 3})
        )
    table.compact()
    picture = picture_of(table.store, snapshot_limit=3)
    assert [(each.snapshot.id, each.log_rows) for each in picture.commits] == [(4, 3), (5, 3), (6, 0)]
    root = ET.fromstring(svg_page(picture))
    kinds = [each.get("class") for each in root.iter(f"{SVG}rect") if (each.get("class") or "").startswith("f k")]
    assert kinds == ["f kAPPEND", "f kAPPEND", "f kCOMPACT"]
    lines = {each.get("class") for each in root.iter(f"{SVG}polyline")}
    assert lines == {"total", "log"}
    assert "the newest 3 of 6 snapshots" in "".join(root.itertext())


def test_a_table_without_anything_can_be_drawn() -> None:
    svg = svg_page(picture_of(key_table(bucket="1").store))
    assert "nothing was committed yet" in svg
    assert "no data files" in svg


def box(first: int, last: int) -> FileBox:
    return FileBox(
        name="f", level=0, size_bytes=1, row_count=1, delete_count=0, first=first, last=last, min_key="1", max_key="2"
    )


@pytest.mark.parametrize(
    ("places", "width", "line"),
    [
        ([(0, 9)], 10, "██████████"),
        ([(0, 3), (4, 9)], 10, "████▓▓▓▓▓▓"),
        ([(2, 3)], 10, "··██······"),
        ([(0, 0), (99, 99)], 100, "█········▓"),
        ([], 1, "··········"),
    ],
)
def test_runs_in_a_terminal(places: list[tuple[int, int]], width: int, line: str) -> None:
    run = RunBoxes(level=0, files=tuple(box(first, last) for first, last in places))
    assert run_cells(run, width, 10) == line


@pytest.mark.sweep
@given(st.text(max_size=30), st.integers(1, 200))
def test_shortened_texts_fit(words: str, room: int) -> None:
    short = shortened(words, room, 5.0)
    assert len(short) <= max(room // 5, 0)
    assert short == words or len(words) > room // 5


@pytest.mark.parametrize("top", [1, 4, 5, 9])
def test_level_0_and_the_top_differ_and_order_is_kept(top: int) -> None:
    classes = [level_class(level, top) for level in range(top + 1)]
    assert classes == sorted(classes)
    assert classes[0] == "l0" != classes[-1]


def test_the_command_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "2"})
    for turn in range(3):
        table.write(rows((1, turn), (2, turn), (3, turn)))
    place = ["inspect", "db.t", "--warehouse", str(tmp_path)]
    assert run_command([*place, "--svg", str(tmp_path / "t.svg"), "--html", str(tmp_path / "t.html")]) == 0
    told = capsys.readouterr()
    assert (told.out, told.err.count("wrote ")) == ("", 2)
    ET.parse(tmp_path / "t.svg")
    assert (tmp_path / "t.html").read_text().startswith("<!doctype html>")
    assert run_command([*place, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["max_run_count"] == 3
    assert run_command([*place, "--buckets", "1"]) == 0
    shown = capsys.readouterr().out
    assert "  L0  █" in shown
    assert "1 of 2 buckets" in shown
    assert run_command([*place, "--svg", str(tmp_path / "no" / "t.svg")]) == EXIT_FAILED
    assert "picture cannot be written: file=" in capsys.readouterr().err


def test_lines_name_buckets_and_keys() -> None:
    table = key_table(bucket="1")
    table.write(rows((5, 1), (9, 1)))
    lines: list[Any] = [line.plain for line in tree_lines(picture_of(table.store), most=4, cells=6)]
    assert lines[0] == 'bucket 0  {"id":5} to {"id":9}'
    assert lines[1].startswith("  L0  ██████     1 file            2 rows")
