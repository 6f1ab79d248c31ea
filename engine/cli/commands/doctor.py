"""The command ``fluvial doctor``: findings about a table, and how to fix them."""

from typing import Final

import click
from rich.text import Text

from engine.cli.output import console, json_option, print_json, waiting
from engine.cli.place import TABLE_NAME, WarehousePlace, with_place
from engine.monitor.doctor import diagnose, examine
from engine.monitor.symptom import Severity, Symptom

_EXIT_WARNING: Final = 1
_SYMBOLS: Final = {
    Severity.OK: ("✓", "green"),
    Severity.NOTE: ("i", "blue"),
    Severity.WARNING: ("!", "yellow"),
    Severity.CRITICAL: ("✗", "red"),
}


@click.command()
@click.argument("table", type=TABLE_NAME)
@click.option("--strict", is_flag=True, help="Exit with 1 on a warning or worse.")
@json_option
@with_place
def doctor(place: WarehousePlace, table: str, strict: bool, as_json: bool) -> int:
    """Explain what costs a table time, space or safety, with the option or command to change it.

    Exit codes: 0; with --strict 1 when a finding is a warning or critical.
    """
    found = place.table(table)
    with waiting(f"examining {found.name}"):
        findings = diagnose(examine(found))
    worst = max(each.severity for each in findings)
    if as_json:
        print_json(
            {"table": found.name, "severity": worst.name.lower(), "findings": [each.as_json() for each in findings]}
        )
    else:
        out = console()
        out.print(Text(found.name, style="bold"))
        for each in findings:
            for line in _lines(each):
                out.print(line, soft_wrap=True)
    return _EXIT_WARNING if strict and worst >= Severity.WARNING else 0


def _lines(finding: Symptom) -> list[Text]:
    symbol, colour = _SYMBOLS[finding.severity]
    first = Text(f" {symbol} ", style=colour).append(f"{finding.check}: ", style="bold").append(finding.fact, style="")
    first.stylize("default", 3)
    return [first] if finding.fix is None else [first, Text(f"     → {finding.fix}", style="cyan")]
