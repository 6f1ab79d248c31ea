"""What programs may build on does not change without a line in the diff and one in CHANGELOG."""

import zlib
from importlib.resources import files
from pathlib import Path
from typing import Final

from click.testing import CliRunner

from engine.cli.app import cli
from engine.cli.promises import EXPERIMENTAL, FILE, STABLE

CHANGELOG: Final = Path(__file__).parents[3] / "CHANGELOG.md"


def _printed() -> str:
    result = CliRunner().invoke(cli, ["config", "--promises"])
    assert result.exit_code == 0, result.output
    return result.output


def test_the_public_names_are_those_of_the_file() -> None:
    """A change is made with: python -m engine.cli config --promises > /tmp/x; mv /tmp/x engine/cli/promises.tsv."""
    kept, found = (text.splitlines() for text in (files("engine.cli").joinpath(FILE).read_text(), _printed()))
    assert {"new": sorted({*found} - {*kept}), "missing": sorted({*kept} - {*found})} == {"new": [], "missing": []}
    assert kept == sorted({*kept})


def test_a_change_of_public_names_is_in_the_changelog() -> None:
    """The digest is that of the file: a change of it belongs beside the words that say what it does for users."""
    names = [line.split("\t") for line in _printed().splitlines()]
    young = sum(each[2] == EXPERIMENTAL for each in names)
    assert {each[2] for each in names} == {STABLE, EXPERIMENTAL}
    digest = f"{zlib.crc32(''.join(kind + name for kind, name, _, _ in names).encode()):08x}"
    first = CHANGELOG.read_text().split("\n## ")[1]
    assert f"{len(names):,} names, {young} of them experimental; {digest}" in " ".join(first.split())


def test_a_name_of_each_kind_is_there() -> None:
    """A kind whose registry is empty would make no promise at all."""
    names = {tuple(line.split("\t")[:2]) for line in _printed().splitlines()}
    assert names >= {
        ("python", "Catalog.table(name, branch)"),
        ("command", "cdc resnapshot --drop"),
        ("command", "tag create"),
        ("option", "table merge-engine"),
        ("option", "table fields.<column>.aggregate-function"),
        ("option", "fluvial-kafka partial-deletes"),
        ("key", "CdcConfig.deletes"),
        ("procedure", "verify returns problem"),
        ("metric", "fluvial_rows_total{table}"),
        ("column", "$snapshots.snapshot_id"),
    }
