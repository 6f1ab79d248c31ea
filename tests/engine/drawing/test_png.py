"""The picture in pixels: everything of the SVG is where it says, in its colour."""

import io
import sys
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from engine import Catalog
from engine.cli.app import run_command
from engine.drawing.model import picture_of
from engine.drawing.page import svg_page
from engine.drawing.png import LOOKS, Points, dashes, png_picture
from engine.drawing.svg import SVG, Canvas
from filestore.table import FileTable
from tests.support.tables import KEY_SCHEMA, key_table, rows


def pixels(svg: str) -> Image.Image:
    image = Image.open(io.BytesIO(png_picture(svg)))
    image.load()
    return image


def some_table() -> FileTable:
    table = key_table(bucket="2")
    for turn in range(4):
        table.write(rows((turn, turn), (turn + 7, turn), (turn + 15, turn)))
    table.compact()
    table.write(rows((1, 1), (9, 9)))
    return table


@pytest.mark.sweep
def test_every_box_has_its_colour_at_its_place() -> None:
    svg = svg_page(picture_of(some_table().store))
    root, image = ET.fromstring(svg), pixels(svg)
    assert image.size == (round(2 * float(root.get("width", ""))), round(2 * float(root.get("height", ""))))
    boxes = [each for each in root.iter(f"{{{SVG}}}rect") if each.get("class", "").startswith("f l")]
    assert len(boxes) >= 3
    for box in boxes:
        x, y, width, height = (float(box.get(name, "")) for name in ("x", "y", "width", "height"))
        middle = (round(2 * (x + width / 2)), round(2 * (y + height / 2)))
        fill = LOOKS[box.get("class", "").split()[-1]].fill
        assert fill is not None
        assert image.getpixel(middle) == fill[:3]


def test_every_class_that_is_drawn_has_a_look() -> None:
    classes = {
        name
        for each in ET.fromstring(svg_page(picture_of(some_table().store))).iter()
        for name in each.get("class", "").split()
    }
    assert classes <= LOOKS.keys()
    assert LOOKS["page"].fill == (255, 255, 255, 255)  # of a light page
    assert LOOKS["f"].stroke == (255, 255, 255, 255)  # without a mouse
    assert LOOKS["log"].dash == (4, 3)


@pytest.mark.parametrize("anchor", ["start", "middle", "end"])
def test_words_are_drawn_where_they_belong(anchor: str) -> None:
    """Letters come with Pillow: no font of the machine is asked for."""
    canvas = Canvas(200)
    canvas.label(100, 30, "snapshot ×", size=12, anchor=anchor)
    image = pixels(canvas.finished(50, "t")).convert("L").point(lambda each: 255 if each < 128 else 0)
    left, top, right, bottom = image.getbbox() or (0, 0, 0, 0)
    assert 40 <= top < bottom <= 68
    assert right - left > 60
    centre = (left + right) / 2
    assert (centre > 210) if anchor == "start" else (centre < 190) if anchor == "end" else (195 < centre < 205)


def test_what_is_see_through_lets_the_ground_show() -> None:
    canvas = Canvas(20)
    canvas.rect(0, 0, 20, 20, kind="dead", fill_opacity="0.5")
    red, green, blue = pixels(canvas.finished(20, "t")).getpixel((20, 20))  # type: ignore[misc]
    assert (red, green, blue) == pytest.approx((228, 148, 148), abs=2)


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=2, max_size=6),
    st.integers(1, 9),
    st.integers(1, 9),
)
def test_dashes_cover_their_share_of_a_line(corners: list[tuple[int, int]], drawn: int, left_out: int) -> None:
    points: Points = [(float(x), float(y)) for x, y in corners]
    whole = _length(points)
    pieces = dashes(points, drawn, left_out)
    turns, rest = divmod(whole, drawn + left_out)
    assert sum(map(_length, pieces)) == pytest.approx(turns * drawn + min(rest, drawn), abs=1e-6)
    assert all(_length(piece) <= drawn + 1e-6 for piece in pieces)


@pytest.mark.sweep
def test_the_command_writes_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = Catalog(str(tmp_path)).create_table("db.t", KEY_SCHEMA, primary_key=["id"])
    table.write(rows((1, 1)))
    command = ["inspect", "db.t", "--warehouse", str(tmp_path), "--png", str(tmp_path / "t.png")]
    assert run_command(command) == 0
    with Image.open(tmp_path / "t.png") as image:
        assert image.format == "PNG"
    capsys.readouterr()
    monkeypatch.setitem(sys.modules, "PIL", None)
    assert run_command(command) != 0
    assert "pip install fluvial[png]" in capsys.readouterr().err


def _length(points: Points) -> float:
    return sum(((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) ** 0.5 for a, b in pairwise(points))
