"""A whole picture: heading, history, trees and legend."""

import html
from typing import Final

from engine.drawing.commits import draw_commits
from engine.drawing.key_axis import SCALE_WORDS
from engine.drawing.letters import text_width
from engine.drawing.model import TablePicture
from engine.drawing.script import DETAILS, DETAILS_STYLE
from engine.drawing.svg import Canvas
from engine.drawing.theme import PAGE_STYLE, heat_class, level_class
from engine.drawing.trees import draw_trees
from engine.runtime.units import count_text, many_text, size_text

_WIDTH: Final = 1200.0
_MARGIN: Final = 32.0
_WIDEST: Final = 1600  # in a browser


def svg_page(picture: TablePicture) -> str:
    """The picture as an SVG document; tooltips have the details of every file and snapshot."""
    canvas = Canvas(_WIDTH)
    inner = _WIDTH - 2 * _MARGIN
    canvas.label(_MARGIN, 46, picture.table, size=24, kind="strong", room=inner)
    canvas.label(_MARGIN, 68, _headline(picture), size=12.5, kind="soft", room=inner)
    y = _section(canvas, 104, "history", _history_facts(picture))
    _draw_kinds(canvas, picture, y - 14)
    y = draw_commits(canvas, picture, _MARGIN, y, inner) + 34
    y = _section(canvas, y, "trees" if picture.has_key else "files", _tree_facts(picture))
    _draw_levels(canvas, picture, y - 14)
    y = draw_trees(canvas, picture, _MARGIN, y, inner)
    for line in _explanation(picture):
        canvas.label(_MARGIN, y + 12, line, size=10.5, kind="soft", room=inner)
        y += 15
    return canvas.finished(y + 32, f"table {picture.table}")


def html_page(picture: TablePicture) -> str:
    """The picture as a web page."""
    title = html.escape(picture.table)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"/><title>{title}</title>\n'
        f"<style>{PAGE_STYLE}svg{{display:block;margin:0 auto;width:min(100%,{_WIDEST}px);height:auto}}"
        f"{DETAILS_STYLE}</style></head>\n"
        f"<body>\n{svg_page(picture)}{DETAILS}</body></html>\n"
    )


def _section(canvas: Canvas, y: float, name: str, facts: str) -> float:
    canvas.label(_MARGIN, y, name, size=14, kind="strong")
    canvas.label(_MARGIN + 64, y, facts, size=11, kind="soft")
    return y + 14


def _headline(picture: TablePicture) -> str:
    runs = max((len(bucket.runs) for bucket in picture.buckets), default=0)
    facts = [
        f"{size_text(picture.size_bytes)} in {many_text(picture.file_count, 'file')}",
        f"{count_text(picture.row_count)} rows, older versions included",
        many_text(picture.bucket_count, "bucket"),
        f"at most {many_text(runs, 'sorted run')} in a bucket" if picture.has_key else "no primary key",
    ]
    if picture.commits:
        facts.append(f"snapshot {picture.commits[-1].snapshot.id}")
    return " · ".join(facts)


def _history_facts(picture: TablePicture) -> str:
    shown = len(picture.commits)
    which = (
        f"the newest {shown} of {picture.snapshot_count} snapshots"
        if shown < picture.snapshot_count
        else many_text(shown, "snapshot")
    )
    rows = [commit.snapshot.delta_record_count or 0 for commit in picture.commits]
    most, least = max(rows, default=0), min(rows, default=0)
    dropped = f", at most {count_text(-least)} dropped" if least < 0 else ""
    return f"{which}; bars by square root: at most {many_text(max(most, 0), 'row')} added{dropped}"


def _tree_facts(picture: TablePicture) -> str:
    shown = len(picture.buckets)
    if shown < picture.bucket_count:
        return f"the {shown} of {picture.bucket_count} buckets with the most runs; newest run on top"
    return f"{many_text(shown, 'bucket')}; newest run on top"


def _draw_kinds(canvas: Canvas, picture: TablePicture, y: float) -> None:
    kinds = sorted({commit.snapshot.commit_kind.value for commit in picture.commits})
    entries = [(f"k{kind}", kind.lower()) for kind in kinds] + [("key-total", "rows in files")]
    if any(commit.snapshot.log_offsets for commit in picture.commits):
        entries.append(("key-log", "log offsets"))
    if any(commit.tags for commit in picture.commits):
        entries.append(("tag", "tag"))
    _draw_legend(canvas, entries, y)


def _draw_levels(canvas: Canvas, picture: TablePicture, y: float) -> None:
    levels = sorted({run.level for bucket in picture.buckets for run in bucket.runs})
    entries = [(level_class(level, picture.top_level), f"level {level}") for level in levels]
    counts = {each.runs for bucket in picture.buckets for each in bucket.overlap if each.runs}
    heats: dict[str, list[int]] = {}
    for count in sorted(counts):
        heats.setdefault(heat_class(count, picture.compaction_trigger, picture.stop_trigger), []).append(count)
    entries += [(kind, f"merges {_between(min(members), max(members))}") for kind, members in heats.items()]
    _draw_legend(canvas, entries, y)


def _between(least: int, most: int) -> str:
    return str(least) if least == most else f"{least}–{most}"


def _explanation(picture: TablePicture) -> list[str]:
    if not picture.has_key:
        return ["Every box is a file, in the order of writing; its height is its bytes."]
    scales = sorted({SCALE_WORDS[bucket.scale] for bucket in picture.buckets if bucket.scale is not None})
    return [
        f"Every box is a file: its width is its range of keys, {' or '.join(scales) or 'by value'}; its height is its "
        "bytes. Red at its foot: the share of deletes.",
        "The strip below the runs: how many of them a read of a key there merges, and on average along the axis.",
    ]


def _draw_legend(canvas: Canvas, entries: list[tuple[str, str]], y: float) -> None:
    widths = [16 + text_width(words, 11) + 12 for _, words in entries]
    x = _WIDTH - _MARGIN - sum(widths) + 14
    for (kind, words), width in zip(entries, widths, strict=True):
        canvas.rect(x, y - 8.5, 9, 9, kind=kind, radius=2)
        canvas.label(x + 14, y, words, size=11, kind="soft")
        x += width
