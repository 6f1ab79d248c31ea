"""``make test-all ARGS='-p tests.support.costs'``: which tests cost most, in processor time of all their processes.

What it prints at the end decides which tests are ``long`` (see tests/README.md). Processes that left their parents are
not counted, and the first test of a worker pays for what it starts for all: a broker, Spark.
"""

from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from typing import Any

import psutil
import pytest

SHOWN = 60
_cost_s: Counter[str] = Counter()
_spent_s = 0.0


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """In a worker: a test's report carries the seconds since the test before it."""
    global _spent_s
    report = yield
    if call.when == "teardown":
        before, _spent_s = _spent_s, seconds_of_processes()
        report.user_properties.append(("processor_s", max(0.0, _spent_s - before)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Where the run is summed up."""
    _cost_s[report.nodeid] += sum(seconds for name, seconds in report.user_properties if name == "processor_s")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The dearest tests, the dearest first."""
    terminalreporter.section(f"processor time: {sum(_cost_s.values()):.0f} s")
    for name, seconds in _cost_s.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:7.1f} {name}")


def seconds_of_processes() -> float:
    """Of this process, its descendants, and those of them that ended."""
    found = 0.0
    this = psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with suppress(psutil.Error):
            times = process.cpu_times()
            found += times.user + times.system + times.children_user + times.children_system
    return found
