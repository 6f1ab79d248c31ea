"""New names that look like others are refused; what exists under such a name is read as it is spelled."""

from pathlib import Path

import pyarrow as pa
import pytest

from filestore.branch.branches import create_branch
from filestore.catalog.catalog import FileCatalog
from filestore.layout.file_names import check_spelling
from filestore.tag.tags import create_tag
from lsm.errors import InvalidInputError
from tests.support.tables import key_table, rows

DECOMPOSED = "cafe\N{COMBINING ACUTE ACCENT}"
LOOK_ALIKES = (DECOMPOSED, "\N{CYRILLIC SMALL LETTER O}rders", "\N{GREEK CAPITAL LETTER ALPHA}BC", "shop_раyments")
SCHEMA = pa.schema([("id", pa.int64())])


NAMES = ("orders", "café", "заказы", "orders_заказы", "παραγγελίες", "ü—日本", "注文テーブル", "π2")


@pytest.mark.parametrize("name", NAMES)
def test_names_in_any_language_are_names(name: str) -> None:
    check_spelling("table", name)


@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_name_that_looks_like_another_is_refused(name: str, tmp_path: Path) -> None:
    """Cluster, finding 8: é composed and decomposed, and a Cyrillic look-alike, were two tables."""
    catalog = FileCatalog(str(tmp_path))
    catalog.create_table("db.t", SCHEMA)
    table = key_table()
    table.write(rows((1, 1)))
    for make in (
        lambda: catalog.create_database(name),
        lambda: catalog.create_table(f"db.{name}", SCHEMA),
        lambda: catalog.rename_table("db.t", f"db.{name}"),
        lambda: create_tag(table.store, name),
        lambda: create_branch(table.store, name),
    ):
        with pytest.raises(InvalidInputError, match=r"look like others|look alike.* odd=\["):
            make()
    assert catalog.list_tables("db") == ["t"]


def test_the_message_shows_what_is_odd() -> None:
    with pytest.raises(InvalidInputError, match=r"word=\S+ alphabets=cyrillic, latin odd=\['а', 'р'\] fix="):
        check_spelling("table", LOOK_ALIKES[-1])


def test_a_table_of_another_engine_is_read_as_it_is_spelled(tmp_path: Path) -> None:
    catalog = FileCatalog(str(tmp_path))
    catalog.create_table("db.t", SCHEMA)
    (tmp_path / "db.db" / "t").rename(tmp_path / "db.db" / DECOMPOSED)
    assert catalog.list_tables("db") == [DECOMPOSED]
    assert catalog.table(f"db.{DECOMPOSED}").schema.column_names == ("id",)
