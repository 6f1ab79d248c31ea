"""Option values that become parts of paths: files stay inside the directory of their table."""

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from engine import Catalog
from filestore.options.option import Option
from filestore.options.parsing import file_name
from filestore.options.table_options import TableOptions
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([("id", pa.int64()), ("p", pa.string())])
ROWS = pa.table({"id": [1], "p": ["a"]}, schema=SCHEMA)
OUTSIDE = ["../x", "../../../esc", "/x", "a/../../b", "..", ".", "a\0b", "a\nb", "a\\b", "x" * 300, "\x1b[31m"]
NAMES = [
    key
    for key, option in TableOptions.declared.items()
    if option.parse is file_name
    or (
        option.check is not None
        and key not in {"data-file.path-directory", "watermark.expression"}
        and option.parse.kind == "text"
    )
]
# parts of names that are checked where they are used, or kept elsewhere
NO_PATHS = {"log.kafka.topic", "log.transactional-id.prefix", "path", "file.path", "data-file.external-paths"}


def test_the_options_that_become_paths_are_these() -> None:
    """An option with such a word in its key is in the list, or says why it is not."""
    words = ("prefix", "path", "directory", "-name", "branch", "consumer-id", "commit-user")
    found = {key for key, option in TableOptions.declared.items() if option.parse.kind == "text"
             and key.endswith(words)}  # fmt: skip
    assert found - NO_PATHS == {*NAMES, "data-file.path-directory"}


@pytest.mark.parametrize("value", OUTSIDE)
@pytest.mark.parametrize("key", [*NAMES, "data-file.path-directory"])
def test_a_value_that_leaves_the_table_is_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"option={key} .*expected=.* fix="):
        TableOptions.parse({key: value})


@pytest.mark.parametrize("value", ["part", "a/b", "a/b/", "ä", "a b", "..a"])
def test_directories_below_the_table_are_fine(value: str) -> None:
    assert TableOptions.parse({"data-file.path-directory": value}).data_file_directory == value


@pytest.mark.sweep
@pytest.mark.parametrize("key", ["data-file.prefix", "changelog-file.prefix"])
def test_a_table_of_others_with_such_a_value_is_read_and_not_written(key: str, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    table = catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(ROWS)
    schema = table.store.schema
    written = replace(schema, options={**schema.options, key: "../../x-"}).to_json()
    Path(table.store.paths.schema(schema.id)).write_text(written)
    table = Catalog(str(tmp_path)).table("d.t")
    assert table.read().to_arrow().num_rows == 1
    with pytest.raises(InvalidInputError, match=f"option={key} "):
        table.write(ROWS)
    assert sorted(tmp_path.glob("**/x-*")) == []


def test_a_value_is_refused_where_it_is_given(tmp_path: Path) -> None:
    """Creation, change, read."""
    catalog = Catalog(str(tmp_path))
    with pytest.raises(InvalidInputError, match=r"option=data-file.prefix"):
        catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"data-file.prefix": "../../p-"})
    table = catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    with pytest.raises(InvalidInputError, match=r"branch=x/"):
        table.read(options={"branch": "x/../../../../d.db/t"})
    with pytest.raises(InvalidInputError, match=r"option=scan.tag-name"):
        table.read(options={"scan.tag-name": "../x"}).to_arrow()


def test_a_check_is_of_the_declaration() -> None:
    prefix = TableOptions.declared["data-file.prefix"]
    assert isinstance(prefix, Option)
    assert prefix.read({"data-file.prefix": "../x"}) == "../x"
