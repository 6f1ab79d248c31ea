"""A micro-batch as a picture: lanes of bars from left to right, and a list of what took longest."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final

from engine.drawing.letters import text_width
from engine.drawing.svg import Canvas
from engine.runtime.batch_trace import DRIVER, BatchTrace, Span
from engine.runtime.units import many_text

_WIDTH: Final = 1000.0
_MARGIN: Final = 32.0
_NAMES: Final = 110.0  # of lanes
_TOP: Final = 112.0
_LANE: Final = 30.0
_BAR: Final = 22.0
_FONT: Final = 10.5
_TICKS: Final = 8
_STEPS: Final = (1, 2, 5)  # of ticks, times a power of ten
_LISTED: Final = 12
_LINE: Final = 18.0
_COLOURS: Final = 7  # classes l0 to l6
_ROW_WIDTH: Final = 360.0  # of a batch in a list
_ROW_HEIGHT: Final = 18.0
_SPARK_WIDTH: Final = 90.0


def timeline_svg(trace: BatchTrace, order: Sequence[str] = ()) -> str:
    """The picture as an SVG document. ``order``: names of spans, in the order in which they get colours."""
    canvas = Canvas(_WIDTH)
    rows = "" if trace.rows is None else f"{many_text(trace.rows, 'row')}, "
    title = f"{trace.table}, batch {trace.batch}"
    canvas.label(_MARGIN, 46, title, size=24, kind="strong", room=_WIDTH - 2 * _MARGIN)
    canvas.label(_MARGIN, 68, f"{rows}{ms_text(trace.us)}", size=12.5, kind="soft")
    end = max((each.start_us + each.us for each in trace.spans), default=1) or 1
    left, scale = _MARGIN + _NAMES, (_WIDTH - 2 * _MARGIN - _NAMES) / end
    bottom = _TOP + _LANE * len(trace.lanes)
    for at in ticks_of(end):
        x = left + at * scale
        canvas.line(x, _TOP - 8, x, bottom, kind="axis grid")
        canvas.label(x, _TOP - 14, ms_text(at), size=_FONT, kind="soft", anchor="middle")
    colours = _colours([*order, *totals_of(trace.spans)])
    for number, lane in enumerate(trace.lanes):
        y = _TOP + _LANE * number
        canvas.label(_MARGIN, y + 15, lane, size=12, room=_NAMES - 8)
        for span in trace.spans:
            if span.lane == lane:
                _draw(canvas, span, left + span.start_us * scale, y, span.us * scale, colours[span.name])
    y = bottom + 32
    for name, us in list(totals_of(trace.spans).items())[:_LISTED]:
        canvas.rect(_MARGIN, y - 9, 10, 10, kind=colours[name], radius=2)
        canvas.label(_MARGIN + 18, y, f"{ms_text(us)}  {name}", size=12)
        y += _LINE
    return canvas.finished(y + 8, title)


def _colours(order: Iterable[str]) -> dict[str, str]:
    return {name: f"l{number % _COLOURS}" for number, name in enumerate(dict.fromkeys(order))}


def totals_of(spans: Sequence[Span]) -> dict[str, int]:
    """Microseconds by name, longest first; lanes that run side by side are added up."""
    found: dict[str, int] = defaultdict(int)
    for each in spans:
        found[each.name] += each.us
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def ticks_of(end_us: int) -> list[int]:
    """At most 8 round numbers from 0 up to the end."""
    step = next(
        factor * 10**power for power in range(20) for factor in _STEPS if factor * 10**power * (_TICKS - 1) >= end_us
    )
    return list(range(0, end_us + 1, step))


def ms_text(us: int) -> str:
    """Milliseconds, with a decimal below 10."""
    return f"{us / 1000:.1f} ms" if us < 10_000 else f"{us / 1000:,.0f} ms"


def _draw(canvas: Canvas, span: Span, x: float, y: float, width: float, colour: str) -> None:
    where = "" if span.bucket is None else f" of bucket {span.bucket}"
    canvas.rect(
        x, y, max(width, 1.0), _BAR, kind=f"{colour} f", radius=2, tip=f"{span.name}{where}: {ms_text(span.us)}"
    )
    if text_width(span.name, _FONT, strong=True) + 8 < width:
        canvas.label(x + 4, y + 15, span.name, size=_FONT, kind="strong")


def bars_svg(trace: BatchTrace, longest_us: int, order: Sequence[str]) -> str:
    """The driver's steps of a batch as one bar.

    Args:
        trace: the batch.
        longest_us: of the batch that is as wide as the picture.
        order: names of spans, in the order in which they get colours; those of the driver are among them.
    """
    canvas, colours = Canvas(_ROW_WIDTH), _colours(order)
    scale = _ROW_WIDTH / max(longest_us, trace.us, 1)
    for span in trace.spans:
        if span.lane == DRIVER:
            tip = f"{span.name}: {ms_text(span.us)}"
            canvas.rect(
                span.start_us * scale, 2, max(span.us * scale, 1.0), _ROW_HEIGHT - 4, kind=colours[span.name], tip=tip
            )
    return canvas.finished(_ROW_HEIGHT, f"batch {trace.batch}")


def minutes_svg(rows: Sequence[int], commits: Sequence[int], title: str) -> str:
    """Rows of each minute as an area, and commits as a line, each up to its own maximum; from left to right.

    Args:
        rows: of each minute.
        commits: of each, as many.
        title: what it is, in words.
    """
    canvas = Canvas(_SPARK_WIDTH)
    step, room = _SPARK_WIDTH / max(len(rows) - 1, 1), _ROW_HEIGHT - 2
    highest = [max(values, default=0) or 1 for values in (rows, commits)]
    area, line = (
        [(at * step, _ROW_HEIGHT - 1 - room * each / most) for at, each in enumerate(values)]
        for values, most in zip((rows, commits), highest, strict=True)
    )
    canvas.area([(0, _ROW_HEIGHT), *area, (_SPARK_WIDTH, _ROW_HEIGHT)], kind="kAPPEND")
    canvas.path(line, kind="total")
    return canvas.finished(_ROW_HEIGHT, title)
