"""The page of a soak has each series, each strike, and names what grows."""

from xml.etree import ElementTree as ET

from engine.drawing.svg import SVG
from tests.soak.page import soak_page
from tests.soak.slopes import Series, slope_of
from tests.soak.strikes import Struck

LATE = "498, most 498, floor +180"


def test_a_page_shows_series_strikes_and_growth() -> None:
    growing: Series = [(float(second), 100.0 + second) for second in range(0, 400, 2)]
    flat: Series = [(float(second), 7.0) for second in range(0, 400, 2)]
    series = {"driver rss MB": [growing], "driver fds": [flat[:50], flat[60:]], "topics": [[]]}
    slopes = {name: slope_of(lives, allowed=30) for name, lives in series.items()}
    struck = [Struck(at_s=100.0, what="kill the JVM", back_s=4.5)]
    page = soak_page({"changes": 12, "lost": 0}, series, slopes, struck)
    root = ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])
    words = [each.text or "" for each in root.iter(f"{{{SVG}}}text")]
    assert {"driver rss MB", "driver fds", "topics"} <= set(words)
    assert "changes 12  lost 0" in words
    assert any("kill the JVM: back after 4.5 s" in each for each in words)
    assert [each.text for each in root.iter(f"{{{SVG}}}text") if each.get("class") == "late"] == [LATE]
    lines = [each for each in root.iter(f"{{{SVG}}}polyline") if each.get("class") == "total"]
    assert len(lines) == 3  # one for each life that has one
