"""The page of a soak has each series, each strike, and names what grows."""

from xml.etree import ElementTree as ET

from engine.drawing.svg import SVG
from tests.soak.page import soak_page, thinned
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


def test_an_hour_is_a_page_that_can_be_kept() -> None:
    """Few points for each series, but every peak."""
    life: Series = [(float(second), 1000.0 if second == 1234 else float(second % 7)) for second in range(3600)]
    shown = thinned(life, 240)
    assert len(shown) <= 240
    assert [*shown] == sorted(shown)
    assert (1234.0, 1000.0) in shown
    assert min(value for _, value in shown) == 0.0
    assert thinned(life[:9], 240) == life[:9]
    struck = [Struck(at_s=float(second), what="outage", back_s=4.5) for second in range(0, 1800, 40)]
    one_life = [life]
    many_lives = [life[start : start + 180] for start in range(0, 3600, 180)]
    for lives in (one_life, many_lives):
        series = {f"series {number}": lives for number in range(19)}
        assert len(soak_page({}, series, {}, [])) < 120_000
        assert len(soak_page({}, series, {}, struck)) < 200_000
