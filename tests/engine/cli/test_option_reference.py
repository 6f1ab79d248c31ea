"""The page of options is what the declarations generate, and every option is in it."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from engine.cli.app import cli
from engine.cli.commands.config import COMMAND, reference
from engine.kafka.options import SourceValues
from engine.request.writer_options import WriterOptions
from filestore.options.catalog_options import CatalogOptions
from filestore.options.option import OptionValues
from filestore.options.table_options import TableOptions

ROOT = Path(__file__).resolve().parents[3]


def test_the_committed_page_is_what_the_declarations_generate() -> None:
    assert (ROOT / "docs" / "options.md").read_text() == reference(), f"renew it: {COMMAND}"


def test_the_command_prints_the_page_without_a_warehouse() -> None:
    done = CliRunner().invoke(cli, ["config", "--reference"])
    assert (done.exit_code, done.output) == (0, reference())


@pytest.mark.parametrize("kind", [TableOptions, CatalogOptions, WriterOptions, SourceValues])
def test_every_option_has_a_row_with_its_kind_and_its_line(kind: type[OptionValues]) -> None:
    rows = {line.split("`")[1]: line for line in reference().splitlines() if line.startswith("| `")}
    for key, option in kind.declared.items():
        assert key in rows
        assert option.doc.endswith((".", ")"))
        assert option.parse.kind
    secrets = [key for key, option in kind.declared.items() if option.is_secret]
    assert all("secret" in rows[key] for key in secrets)


def test_every_option_of_paimon_is_on_the_page() -> None:
    page = reference()
    golden = ROOT / "tests" / "golden"
    names = (golden / "paimon-2.0.0-options.txt").read_text(encoding="utf-8").split()
    assert len(names) == 330
    names += (golden / "paimon-other-options.txt").read_text(encoding="utf-8").split()
    assert [key for key in names if f"`{key}`" not in page] == []


def test_no_row_is_broken_by_a_bar() -> None:
    for line in reference().splitlines():
        if line.startswith("| `"):
            assert len(re.findall(r"(?<!\\)\|", line)) == 7
