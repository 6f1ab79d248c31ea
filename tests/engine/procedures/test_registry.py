"""Procedures are declared once: their arguments, documentation and commands come from the function."""

from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.cli.commands.actions import table_name
from engine.cli.exit_codes import EXIT_INVALID
from engine.procedures import PROCEDURES, compact
from engine.procedures.registry import ParameterKind, bind
from lsm.errors import InvalidInputError


@pytest.mark.parametrize("name", PROCEDURES)
def test_every_procedure_says_what_it_takes_and_what_it_gives(name: str) -> None:
    found = PROCEDURES[name]
    assert found.name == name
    assert found.summary.endswith(".")
    assert all(each.doc for each in found.parameters)
    assert len(found.result.names) > 0
    ours = {"catalog", "progress", *(["table"] if found.is_of_table else [])}  # what callers give in another way
    assert not ours & {each.name for each in found.parameters}


def test_parameters_come_from_the_signature() -> None:
    by_name = {each.name: each for each in compact.parameters}
    assert list(by_name) == [
        "partitions", "where", "compact_strategy", "partition_idle_time", "buckets", "most_buckets",
        "time_limit", "order_strategy", "order_by",
    ]  # fmt: skip
    assert by_name["compact_strategy"].choices == ("minor", "full")
    assert by_name["compact_strategy"].default == "minor"
    assert by_name["partition_idle_time"].takes_integer
    dry_run = PROCEDURES["drop_partition"].parameters[-1]
    assert (dry_run.name, dry_run.kind, dry_run.default) == ("dry_run", ParameterKind.BOOLEAN, False)
    assert PROCEDURES["drop_partition"].deletes
    assert not compact.deletes


def test_arguments_are_bound_by_position_or_by_name() -> None:
    assert bind(compact, ("dt=d1", None, "full"), {}) == {
        "partitions": "dt=d1",
        "where": None,
        "compact_strategy": "full",
    }
    assert bind(compact, (), {"compactStrategy": "full", "partition_idle_time": 60}) == {
        "compact_strategy": "full",
        "partition_idle_time": "60",
    }
    assert bind(PROCEDURES["drop_partition"], (), {"partitions": "dt=d1", "dry_run": "TRUE"})["dry_run"] is True


@pytest.mark.parametrize(
    ("positional", "named", "fact"),
    [
        (("dt=d1",), {"where": "dt = 'd1'"}, "by name or by position"),
        ((), {"partition": "dt=d1"}, "did_you_mean=partitions"),
        ((), {"compact_strategy": "hard"}, r"argument=compact_strategy value='hard' expected=minor \| full"),
        ((), {"where": 5}, "argument=where value=5 expected=text"),
        (tuple("abcdefghij"), {}, "too many arguments"),
        ((), {"where": "a", "WHERE": "b"}, "given twice"),
    ],
)
def test_wrong_arguments_are_named(positional: tuple[object, ...], named: dict[str, object], fact: str) -> None:
    with pytest.raises(InvalidInputError, match=fact):
        bind(compact, positional, named)


def test_a_required_argument_must_be_given() -> None:
    with pytest.raises(InvalidInputError, match="argument is missing: procedure=mark_partition_done argument=partiti"):
        bind(PROCEDURES["mark_partition_done"], (), {})


def test_the_table_of_an_action_is_named_once() -> None:
    assert table_name("shop", "orders", None) == "shop.orders"
    assert table_name(None, "shop.orders", None) == table_name("shop", "shop.orders", None) == "shop.orders"
    assert table_name(None, None, "shop.orders") == "shop.orders"
    for wrong in ((None, "orders", None), ("shop", None, None), ("web", "shop.orders", None), ("a", "b", "a.b")):
        with pytest.raises(InvalidInputError):
            table_name(*wrong)


def test_an_action_that_is_asked_wrongly_ends_with_code_2(
    new_table: Callable[..., Table], catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    new_table()
    place = ["--warehouse", catalog.warehouse, "--database", "shop"]
    assert run_command(["compact", *place, "--table", "ordres"]) == EXIT_INVALID
    assert run_command(["compact", *place, "--table", "orders", "--compact-strategy", "hard"]) == EXIT_INVALID
    assert run_command(["drop-partition", *place, "--table", "orders"]) == EXIT_INVALID
    assert "no partition is chosen" in capsys.readouterr().err


def test_people_get_a_table_and_are_told_of_a_dry_run(
    new_table: Callable[..., Table], catalog: Catalog, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    new_table()
    place = ["shop.orders", "--warehouse", catalog.warehouse]
    assert run_command(["drop-partition", *place, "--partitions", "dt=d1", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "dry run: nothing was done" in shown
    assert "dt=d1" in shown
    assert run_command(["compact", *place, "--full"]) == 0
    assert "files before" in capsys.readouterr().out
    assert run_command(["compact", *place, "--full"]) == 0
    assert "nothing to do" in capsys.readouterr().out
