"""The reference of SQL does what it says: every statement runs, and gives what stands below it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlResult, SqlSession

PAGE = Path(__file__).resolve().parents[3] / "docs/sql.md"
BLOCKS = re.compile(r"```sql\n(.*?)```(?:\n\n```\n(.*?)```)?", re.DOTALL)


def rows_of(result: SqlResult) -> pa.Table:
    if result.table is not None:
        return result.table
    assert result.frame is not None
    return result.frame.toArrow()


def shown(rows: pa.Table) -> str:
    """Names, then a line for each row."""
    lines = [[str(each) for each in row.values()] for row in rows.to_pylist()]
    return "".join(f"{' | '.join(line)}\n" for line in [rows.column_names, *lines])


def blocks() -> Iterator[tuple[str, str]]:
    return ((match[1], match[2]) for match in BLOCKS.finditer(PAGE.read_text(encoding="utf-8")))


@pytest.mark.long
@pytest.mark.sweep
def test_every_statement_gives_what_the_page_says(spark: SparkSession, tmp_path: Path) -> None:
    """FL-07..FL-16, FL-19..FL-23, FL-28..FL-34, FL-83, FL-104."""
    context = SqlContext(catalog=Catalog(str(tmp_path)), open_spark=spark.newSession)
    session = SqlSession(context)
    checked = 0
    for text, expected in blocks():
        rows = [rows_of(result) for result in session.execute(text)]
        if expected:
            assert shown(rows[-1]) == expected, text
            checked += 1
    assert checked > 15
