"""Run benchmarks one after the other and keep their lines: ``python -m benchmarks [--quick | --tiny] [name ...]``.

Every line goes to ``.bench/<date>.jsonl``; at the end a table says which budgets are met. A line that compares systems
becomes a table with ratios too, and a chart, ``.bench/<benchmark>.svg``.
"""

import argparse
import datetime as dt
import json
import subprocess
import sys
from typing import Any

from rich.console import Console
from rich.table import Table as Grid

from benchmarks.comparison import comparison_grid, comparison_svg
from benchmarks.harness import REPOSITORY


def main() -> None:
    known = modules()
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run benchmarks one after the other: a line of JSON each, kept in .bench/, and a table at the end.",
        epilog=f"Benchmarks: {', '.join(sorted(known))}.",
    )
    parser.add_argument("names", nargs="*", metavar="name", help="of benchmarks; all if none is given")
    parser.add_argument("--quick", action="store_true", help="smaller: minutes instead of hours")
    parser.add_argument("--tiny", action="store_true", help="as small as can be: shows that it runs, measures nothing")
    asked = parser.parse_args()
    wanted = asked.names
    unknown = [name for name in wanted if name not in known]
    if unknown:
        parser.error(f"no such benchmark: {unknown[0]} known={', '.join(sorted(known))}")
    flags = [flag for flag, is_set in (("--quick", asked.quick), ("--tiny", asked.tiny)) if is_set]
    folder = REPOSITORY / ".bench"
    folder.mkdir(exist_ok=True)
    kept = folder / f"{dt.datetime.now(tz=dt.UTC):%Y-%m-%d}.jsonl"
    lines: list[dict[str, Any]] = []
    failed = []
    for name in wanted or sorted(known):
        print(f"— {name}", file=sys.stderr, flush=True)
        command = [sys.executable, "-m", known[name], *flags]
        done = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode != 0:
            failed.append(name)
        found = [line for line in done.stdout.splitlines() if line.startswith("{")]
        with kept.open("a") as file:
            file.writelines(line + "\n" for line in found)
        lines += [json.loads(line) for line in found]
    show(lines)
    for line in lines:
        if len(line.get("compared", ())) > 1:
            Console(stderr=True).print(comparison_grid(line))
            (folder / f"{line['benchmark']}.svg").write_text(comparison_svg(line), encoding="utf-8")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def modules() -> dict[str, str]:
    """The module of each benchmark by its name, from every room."""
    found = sorted((REPOSITORY / "benchmarks").rglob("bench_*.py"))
    return {path.stem.removeprefix("bench_"): f"benchmarks.{path.parent.name}.{path.stem}" for path in found}


def show(lines: list[dict[str, Any]]) -> None:
    """What was measured, one row for each line that has a budget of its own or inside."""
    grid = Grid("benchmark", "case", "figure", "budget", "met")
    for line in lines:
        inner = {key: value for key, value in line.items() if isinstance(value, dict) and "budget" in value}
        for case, facts in (inner or {"": line}).items():
            case_text = " ".join(str(facts[key]) for key in ("keys", "runs", "state", "reader") if key in facts) or case
            figure = next(
                (
                    facts[key]
                    for key in (
                        "cost_to_floor",
                        "cost_to_parquet",
                        "ratio_to_peer",
                        "times_as_fast_as_pypaimon",
                        "ratio",
                        "beyond_floor_ms",
                        "p50_ms",
                    )
                    if key in facts
                ),
                "",
            )
            grid.add_row(
                line["benchmark"],
                case_text,
                str(figure),
                str(facts.get("budget", "")),
                {True: "yes", False: "NO"}.get(facts.get("met"), ""),
            )
    Console(stderr=True).print(grid)


if __name__ == "__main__":
    main()
