"""Pictures of tables: valid, complete, nothing over anything else."""

import json
from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine import Catalog
from engine.cli.app import run_command
from engine.cli.commands.inspect import heat_cells, run_cells, tree_lines
from engine.cli.exit_codes import EXIT_FAILED
from engine.drawing.key_axis import Stretch
from engine.drawing.letters import balanced, shortened, text_width, wrapped
from engine.drawing.model import FileBox, RunBoxes, TablePicture, picture_of
from engine.drawing.page import html_page, svg_page
from engine.drawing.svg import Canvas
from engine.drawing.theme import level_class
from filestore.scan.live_files import LiveFiles
from filestore.table import FileTable
from tests.support.pictures import SVG, boxes_of, check_words, labels_of
from tests.support.tables import KEY_SCHEMA, committable_of, key_table, memory_catalog, rows
from tests.support.vectors import golden_tables

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


def box(first: float, last: float) -> FileBox:
    return FileBox(
        name="f", level=0, size_bytes=1, row_count=1, delete_count=0, first=first, last=last, ranks=(0, 0), min_key="1",
        max_key="2",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("places", "line"),
    [
        ([(0, 1)], "██████████"),
        ([(0, 0.4), (0.4, 1)], "████▓▓▓▓▓▓"),
        ([(0.2, 0.4)], "··██······"),
        ([(0, 0), (1, 1)], "█········▓"),
        ([(0.01, 0.96)], "██████████"),
        ([], "··········"),
    ],
)
def test_runs_in_a_terminal(places: list[tuple[float, float]], line: str) -> None:
    run = RunBoxes(level=0, files=tuple(box(first, last) for first, last in places))
    assert run_cells(run, 10) == line


def test_the_heat_of_a_terminal_is_the_maximum_of_each_cell() -> None:
    overlap = [
        Stretch(start=0, end=0.25, runs=1),
        Stretch(start=0.25, end=0.26, runs=7),
        Stretch(start=0.5, end=1, runs=2),
    ]
    assert heat_cells(overlap, 4) == [1, 7, 2, 2]


@pytest.mark.sweep
@given(st.text(max_size=30), st.integers(1, 400))
@example("000-00v0t", 60)  # as wide as its room but for a rounding
def test_shortened_and_wrapped_texts_fit(words: str, room: int) -> None:
    short = shortened(words, room, 12)
    assert text_width(short, 12) <= room
    assert short == words or text_width(words, 12) > room
    lines, alike = wrapped(words, room, 12), balanced(words, room, 12)
    assert len(lines) == len(alike)
    for found in (lines, alike):
        assert "".join(found).replace(" ", "") == words.replace(" ", "")
        assert all(text_width(line, 12) <= room or len(line) == 1 for line in found)


def test_names_are_wrapped_behind_signs() -> None:
    assert wrapped("dw.src_events_stream_raw_v2", 120, 13) == ["dw.src_events_", "stream_raw_v2"]
    assert shortened("dw.src_events_stream_raw_v2", 120, 13) == "dw.src_…_raw_v2"
    assert wrapped("dw.stg_stock_of_shops_16", 160, 13) == ["dw.stg_stock_of_shops_", "16"]
    assert balanced("dw.stg_stock_of_shops_16", 160, 13) == ["dw.stg_stock_", "of_shops_16"]
    assert balanced("y" * 23, 160, 13) == wrapped("y" * 23, 160, 13)


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
    reported = capsys.readouterr()
    assert (reported.out, reported.err.count("wrote ")) == ("", 2)
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
    assert lines[0] == 'bucket 0  {"id":5} to {"id":9}  by value'
    assert lines[1].startswith("  L0  ██████     1 file            2 rows")


@pytest.mark.sweep
@pytest.mark.parametrize("buckets", [1, 4, 9, 40, 100])
def test_words_are_in_their_panels_and_apart(buckets: int) -> None:
    schema = pa.schema([("day", pa.string()), ("shop", pa.string()), ("v", pa.int64())])
    table = key_table(schema=schema, primary_key=("day", "shop"), partition_by=("day",), bucket="1")
    for turn in range(3):
        days = [f"2026-11-22-{day:03}-and-a-long-name" for day in range(buckets)]
        shops = [f"a shop with a long name {turn}", "WWWWWWWWWWWWWWWWWWWWWWWWWW"] * buckets
        data = {"day": sorted(days * 2), "shop": shops, "v": [1234567890] * 2 * buckets}
        table.write(pa.table(data, schema=table.schema.arrow_schema))
    svg = svg_page(picture_of(table.store))
    check_words(svg, "panel")
    texts = [*ET.fromstring(svg).iter(f"{SVG}text")]
    assert min(float(each.get("font-size", "")) for each in texts) >= 8.5
    names = " ".join(each.text or "" for each in texts)
    assert all(f"-{day:03}" in names for day in range(buckets)), "partitions can be kept apart"


@pytest.mark.sweep
def test_the_history_names_values_snapshots_and_times() -> None:
    table = key_table(bucket="1")
    for key in range(40):
        table.write(rows((key, 1)))
    table.compact(full=True)
    svg = svg_page(picture_of(table.store))
    check_words(svg, "panel")
    words = [each.what for each in labels_of(ET.fromstring(svg))]
    assert {"+1", "0", "1", "41"} <= set(words)
    assert sum(word.endswith("Z") for word in words) >= 5
    assert "41 snapshots; bars by square root: at most 1 row added" in words
    tips = [each.findtext(f"{SVG}title") or "" for each in ET.fromstring(svg).iter(f"{SVG}rect")]
    assert any("identifier batch" in tip for tip in tips)
    assert not any("9223372036854775807" in tip for tip in tips)
    [panel] = boxes_of(ET.fromstring(svg), "panel")[:1]
    lowest = max(each.bottom for each in labels_of(ET.fromstring(svg)) if panel.holds(each))
    assert panel.bottom - lowest < 14, "a strip without anything"


def test_a_click_finds_the_files_with_the_same_keys() -> None:
    """What the script of the page reads: the bucket of each file, and the ranks of its keys; each box has a tip."""
    table = key_table(bucket="1", **{"write-only": "true"})
    for keys in ((1, 5), (6, 9), (5, 6)):
        table.write(rows(*((key, 0) for key in keys)))
    found = [(box.get("data-bucket"), box.get("data-first"), box.get("data-last")) for box in boxes(_svg_of(table))]
    assert found == [("bucket 0", "1", "2"), ("bucket 0", "2", "3"), ("bucket 0", "0", "1")]
    page = html_page(picture_of(table.store))
    assert 'id="details"' in page
    assert page.count("data-bucket=") == 3


def _svg_of(table: FileTable) -> str:
    return svg_page(picture_of(table.store))
