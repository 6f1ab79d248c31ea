"""Colours of the pictures, for light and dark screens."""

from typing import Final

LEVELS: Final = ("#f76707", "#f59f00", "#74b816", "#12b886", "#1098ad", "#4263eb", "#7048e8")
"""By level: hot colours for level 0, cool ones for fully merged data."""
HEATS: Final = ("#ffe08a", "#ffc14d", "#ff922b", "#e8590c", "#a61e4d")
"""By the number of runs that a read merges: one, few, many, too many, so many that writers wait."""
KINDS: Final = {"APPEND": "#339af0", "COMPACT": "#9775fa", "OVERWRITE": "#fa5252", "ANALYZE": "#868e96"}

PAGE_STYLE: Final = (
    ":root{color-scheme:light dark}body{margin:0;background:#ffffff;color:#1f2933;"
    "font-family:Inter,'Segoe UI',Helvetica,Arial,sans-serif}"
    "@media (prefers-color-scheme: dark){body{background:#12161c;color:#e4e7eb}}"
)
"""Of the web page around a picture."""

STYLE: Final = "\n".join(
    [
        ".page{fill:#ffffff} .panel{fill:#f8f9fb;stroke:#e6e9ef} .lane{fill:#eef1f5}",
        ".ink{fill:#1f2933} .soft{fill:#5f6b7a} .strong{fill:#1f2933;font-weight:600}",
        ".axis{stroke:#cbd2d9;stroke-width:1} .grid{stroke-dasharray:2 4}",
        ".total{fill:none;stroke:#1f2933;stroke-width:1.5;stroke-opacity:.75}",
        ".total,.log,.under,.axis{pointer-events:none}",
        ".under{fill:#1f2933;fill-opacity:.06} .log{fill:none;stroke:#0ca678;stroke-width:1.5;stroke-dasharray:4 3}",
        ".tag{fill:#e64980} .good{fill:#2f9e44} .warn{fill:#f08c00} .bad{fill:#e03131} .dead{fill:#c92a2a}",
        ".edge{fill:none;stroke:#7b8794;stroke-width:1.4} .head{fill:#7b8794} .node{stroke:#ffffff;stroke-width:1}",
        ".table{fill:#e7f5ff;stroke:#4dabf7} .job{fill:#fff4e6;stroke:#ffa94d} .root{stroke-width:3}",
        ".late{fill:#c92a2a} .lateness{stroke:#e03131} .beside{stroke-dasharray:4 3}",
        ".key-log{fill:#0ca678} .key-total{fill:#1f2933}",
        *(f".l{level}{{fill:{colour}}}" for level, colour in enumerate(LEVELS)),
        *(f".h{heat}{{fill:{colour}}}" for heat, colour in enumerate(HEATS)),
        *(f".k{kind}{{fill:{colour}}}" for kind, colour in KINDS.items()),
        ".f{stroke:#ffffff;stroke-width:.6} .f:hover{stroke:#1f2933;stroke-width:1.5}",
        "@media (prefers-color-scheme: dark){.page{fill:#12161c} .panel{fill:#1a2027;stroke:#2b343e}",
        ".lane{fill:#222a33} .ink,.strong{fill:#e4e7eb} .soft{fill:#9aa7b4} .axis{stroke:#3e4c59}",
        ".total{stroke:#e4e7eb} .under{fill:#e4e7eb} .key-total{fill:#e4e7eb} .f{stroke:#1a2027}",
        ".table{fill:#12304a;stroke:#4dabf7} .job{fill:#42290f;stroke:#ffa94d} .edge{stroke:#7b8794}",
        ".late{fill:#ffa8a8} .lateness{stroke:#ff8787} .head{fill:#7b8794} .f:hover{stroke:#ffffff}}",
    ]
)


def level_class(level: int, top_level: int) -> str:
    """Class of a level: the first colour for 0, the last regular one for the highest, others in between."""
    if level == 0:
        return "l0"
    last = len(LEVELS) - 2
    if top_level <= last:
        return f"l{min(level, last)}"
    return f"l{1 + round((level - 1) * (last - 1) / max(top_level - 1, 1))}"


def heat_class(runs: int, trigger: int, stop: int) -> str:
    """Class of a part of the key axis.

    Args:
        runs: that a read merges there, >= 1.
        trigger: runs at which a bucket is compacted.
        stop: runs at which writers wait.
    """
    return f"h{(runs > 1) + (2 * runs > trigger) * (runs > 1) + (runs >= max(trigger, 2)) + (runs >= max(stop, 2))}"
