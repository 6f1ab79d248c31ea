"""What a notebook shows of rows and records."""

from dataclasses import is_dataclass
from importlib import import_module

import pyarrow as pa

from engine.drawing.notebook import RECORDS, fields_html, rows_html
from filestore.tag.tags import create_tag
from tests.support.tables import key_table, rows


def test_rows_are_a_table_of_the_first_fifty() -> None:
    html = rows_html(pa.table({"n": range(51)}))
    assert html.startswith("<table><tr><th>n</th></tr><tr><td>0</td></tr><tr><td>1</td></tr>")
    assert html.endswith("<tr><td>49</td></tr></table><p>51 rows, of which 50 are shown</p>")
    assert rows_html(pa.table({"n": range(50)})).endswith("<td>49</td></tr></table>")


def test_names_and_values_are_text() -> None:
    """A stranger's value is no element of the page; two columns of one name stay two; null is empty."""
    table = pa.Table.from_arrays([pa.array(["<script>", None]), pa.array(["\x1b[2J", "y" * 121])], ["<b>", "<b>"])
    assert rows_html(table) == (
        "<table><tr><th>&lt;b&gt;</th><th>&lt;b&gt;</th></tr><tr><td>&lt;script&gt;</td><td>\\x1b[2J</td></tr>"
        f"<tr><td></td><td>{'y' * 120}…</td></tr></table>"
    )
    assert rows_html(pa.table({})) == "<table><tr></tr></table>"


def test_a_record_is_a_table_of_its_fields() -> None:
    table = key_table(bucket="1")
    table.write(rows((1, 1)))
    html = fields_html(create_tag(table.store, "<eod>"))
    assert html.startswith("<div><code>Tag</code><table><tr><th>field</th><th>value</th></tr>")
    assert "<tr><td>name</td><td>&lt;eod&gt;</td></tr>" in html
    assert "retained_ms" not in html, "it has no value"


def test_every_record_is_a_dataclass() -> None:
    assert [name for module, name in RECORDS if not is_dataclass(getattr(import_module(module), name))] == []
