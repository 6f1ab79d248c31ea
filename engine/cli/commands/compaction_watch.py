"""``fluvial compact --watch`` and ``fluvial compact-database --watch``: compaction as a separate job."""

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from engine.catalog import Catalog
from engine.cli.output import console
from engine.cli.signals import stop_on_signals
from engine.deploy.compaction_job import CompactionJob, JobEvent, JobPolicy, every_bucket
from engine.procedures.maintenance.compaction import chosen_buckets, matching_tables
from engine.procedures.values import parse_duration_ms
from engine.runtime.units import size_text
from engine.table import Table
from lsm.errors import InvalidInputError

WATCHED: Final = frozenset({"compact", "compact_database"})
_ORDER_ARGUMENTS: Final = ("order_strategy", "order_by")
_POLICY_ARGUMENTS: Final = ("compact_strategy", "most_buckets", "time_limit", *_ORDER_ARGUMENTS)
_OPTIONS: Final = ("watch", "interval", "max_interval", "parallelism")


def watch_options() -> list[Callable[[Any], Any]]:
    """The options of a watching command, besides the arguments of its procedure."""
    policy = JobPolicy()
    seconds = click.FloatRange(0.05)
    return [
        click.option("--watch", is_flag=True, help="Run until SIGINT or SIGTERM; running merges are completed."),
        click.option(
            "--interval",
            type=seconds,
            default=policy.interval_s,
            show_default=True,
            help="With --watch: seconds between two checks of a changing table.",
        ),
        click.option(
            "--max-interval",
            type=seconds,
            default=policy.most_wait_s,
            show_default=True,
            help="With --watch: maximum seconds between checks of an idle or failing table.",
        ),
        click.option(
            "--parallelism",
            type=click.IntRange(1),
            default=policy.parallelism,
            show_default=True,
            help="With --watch: buckets to merge concurrently.",
        ),
    ]


def take_watch_options(given: dict[str, Any]) -> Mapping[str, Any] | None:
    """Remove the options of ``watch_options`` from the given ones; None: --watch is not set."""
    taken = {name: given.pop(name) for name in _OPTIONS}
    return taken if taken["watch"] else None


def watch(
    target: Table | Catalog,
    catalog: Catalog,
    arguments: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    as_json: bool,
) -> None:
    """Compact until a signal arrives, and print one line per commit."""
    given = [name for name in _ORDER_ARGUMENTS if arguments.get(name, "none") != "none"]
    if given:
        raise InvalidInputError(
            f"a job that watches compacts without an order: {given[0]}={arguments[given[0]]} "
            "fix='run fluvial cluster from time to time'"
        )
    policy = JobPolicy(
        is_full=arguments.get("compact_strategy") == "full",
        interval_s=options["interval"],
        most_wait_s=options["max_interval"],
        parallelism=options["parallelism"],
        buckets_per_commit=arguments.get("most_buckets") or JobPolicy().buckets_per_commit,
    )
    chosen = {key: value for key, value in arguments.items() if key not in _POLICY_ARGUMENTS}
    stop = threading.Event()
    time_limit = arguments.get("time_limit")
    if time_limit is not None:
        end = threading.Timer(parse_duration_ms("time_limit", time_limit) / 1000, stop.set)
        end.daemon = True
        end.start()
    print_event = _print_json if as_json else _print_line
    if isinstance(target, Table):
        name = target.name
        choice = (lambda store: chosen_buckets(store, **chosen)) if chosen else every_bucket
        job = CompactionJob(
            catalog, lambda: [name], policy=policy, on_event=print_event, choice=choice, must_exist=True
        )
    else:
        job = CompactionJob(catalog, lambda: matching_tables(catalog, **chosen), policy=policy, on_event=print_event)
    with stop_on_signals(stop, (signal.SIGINT, signal.SIGTERM)):
        job.run(stop)


def _print_json(event: JobEvent) -> None:
    sys.stdout.write(json.dumps(event.as_json(), ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _print_line(event: JobEvent) -> None:
    if event.event == "compacted":
        facts = (
            f"snapshot {event.snapshot_id}: {event.buckets} buckets, {event.files_before} files became "
            f"{event.files_after}, {size_text(event.size_before_bytes)} became {size_text(event.size_after_bytes)}, "
            f"{event.seconds:.1f} s"
        )
        facts += f", {event.tasks_left} merges left" if event.tasks_left else ""
    else:
        facts = f"{event.event}, next try in {event.retry_s:.0f} s: {event.error}"
    console().print(f"{event.table}: {facts}", soft_wrap=True, markup=False)
    sys.stdout.flush()
