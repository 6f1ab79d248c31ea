"""Pictures over time: batches as bars, and what was written in each minute."""

from xml.etree import ElementTree as ET

import pytest

from engine.drawing.timeline import bars_svg, minutes_svg, timeline_svg
from engine.runtime.batch_trace import BatchTrace, Span

NAME = "{http://www.w3.org/2000/svg}"
HOSTILE = "</svg><script>alert(1)</script>"


def traced(*steps: tuple[str, int, int], table: str = "db.t") -> BatchTrace:
    spans = tuple(Span(lane="driver", name=name, start_us=start, us=us) for name, start, us in steps)
    return BatchTrace(table=table, batch=7, rows=1, spans=spans)


def bars(svg: str) -> list[tuple[float, float, str]]:
    """Left side, width and class of each bar."""
    found = [each for each in ET.fromstring(svg).iter(f"{NAME}rect") if each.get("class") != "page"]
    return [(float(each.attrib["x"]), float(each.attrib["width"]), each.attrib["class"]) for each in found]


def test_bars_of_batches_have_one_scale_and_one_colour_for_a_step() -> None:
    short, long = traced(("wait", 0, 1000), ("write", 1000, 9000)), traced(("write", 0, 39_000), ("wait", 39_000, 1000))
    order = ["write", "wait"]
    first, second = (bars(bars_svg(each, 40_000, order)) for each in (short, long))
    assert first == [(0, 9, "l1"), (9, 81, "l0")]
    assert second == [(0, 351, "l0"), (351, 9, "l1")]
    drawn = {kind.split()[0] for _, _, kind in bars(timeline_svg(long, ["wait"])) if "f" in kind.split()}
    assert drawn == {"l0", "l1"}


@pytest.mark.parametrize("values", [[], [0], [5], [0, 0, 0], [0, 3, 1_000_000_000_000]])
def test_minutes_stay_in_their_picture(values: list[int]) -> None:
    root = ET.fromstring(minutes_svg(values, values, HOSTILE))
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    lines = [each.attrib["points"] for each in root if each.tag in (f"{NAME}polygon", f"{NAME}polyline")]
    assert len(lines) == 2
    for pair in " ".join(lines).split():
        x, y = map(float, pair.split(","))
        assert (0 <= x <= width, 0 <= y <= height) == (True, True)
    assert [each.text for each in root.iter(f"{NAME}title")] == [HOSTILE]
