"""The table and the chart of systems that did the same work."""

from xml.etree import ElementTree as ET

from rich.console import Console

from benchmarks.comparison import LEFT, comparison_grid, comparison_svg

LINE = {
    "benchmark": "ingest",
    "commit": "abc",
    "machine": "two cores",
    "rows": 2_000_000,
    "compared": {"fluvial, log off": 10.0, "fluvial, log on": 12.5, "other <sink>": 40.0, "another": 25.0},
}


def test_the_table_has_ratios_to_the_first_system_the_quickest_first() -> None:
    """Issue 17 item 10."""
    console = Console(width=100)
    with console.capture() as captured:
        console.print(comparison_grid(LINE))
    rows = [[cell.strip() for cell in row.split("│")[1:-1]] for row in captured.get().splitlines() if "│" in row]
    assert rows == [
        ["fluvial, log off", "10.0", "1.00", "200,000"],
        ["fluvial, log on", "12.5", "1.25", "160,000"],
        ["another", "25.0", "2.50", "80,000"],
        ["other <sink>", "40.0", "4.00", "50,000"],
    ]


def test_a_system_that_was_stopped_needed_more() -> None:
    line = LINE | {"stopped": ["other <sink>"]}
    console = Console(width=100)
    with console.capture() as captured:
        console.print(comparison_grid(line))
    assert [cell.strip() for cell in captured.get().splitlines()[-2].split("│")[1:-1]] == [
        "other <sink>",
        "> 40.0",
        "> 4.00",
        "",
    ]
    words = [each.text for each in ET.fromstring(comparison_svg(line)).iter("{http://www.w3.org/2000/svg}text")]
    assert "> 40.0 s, > 4.00 ×" in words
    assert "25.0 s, 2.50 ×" in words


def test_the_bars_of_the_chart_are_as_long_as_the_seconds() -> None:
    page = ET.fromstring(comparison_svg(LINE))
    space = {"svg": "http://www.w3.org/2000/svg"}
    bars = [each for each in page.findall("svg:rect", space) if each.get("x") == str(LEFT)]
    widths = [float(each.attrib["width"]) for each in bars]
    assert [round(width / widths[0], 3) for width in widths] == [1.0, 1.25, 2.5, 4.0]
    assert [each.get("class") == "good" for each in bars] == [True, True, False, False]
    words = [each.text for each in page.findall("svg:text", space)]
    assert "40.0 s, 4.00 ×" in words
    assert "other <sink>" in words
