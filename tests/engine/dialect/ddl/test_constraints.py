"""CHECK constraints: said in SQL, held by every writer that needs no Spark."""

from collections.abc import Callable

import pyarrow as pa
import pytest

from engine import Catalog, sql
from engine.table import Table
from filestore.evolution.schema_change import RenameColumn, SetOption
from lsm.errors import ConflictError, InvalidInputError

CREATE = (
    "CREATE TABLE d.t (id INT PRIMARY KEY NOT ENFORCED, amount INT CHECK (amount >= 0), state STRING, "
    "CONSTRAINT known CHECK (state IN ('new', 'paid'))) WITH ('bucket' = '2')"
)
PLAIN = "CREATE TABLE d.t (id INT, amount INT, CONSTRAINT positive CHECK (amount >= 0))"


def orders_of(*amounts: int | None, state: str | None = "new") -> pa.Table:
    ids = pa.array(range(len(amounts)), pa.int32())
    return pa.table({"id": ids, "amount": pa.array(amounts, pa.int32()), "state": pa.array([state] * len(amounts))})


def answer_to(catalog: Catalog, text: str) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in sql(None, text, catalog).to_pylist()]


def amounts_in(table: Table) -> list[int]:
    return sorted(table.read().to_arrow()["amount"].to_pylist(), key=lambda each: (each is None, each))


def write_at_once(table: Table, given: pa.Table) -> None:
    table.write(given)


def overwrite_all(table: Table, given: pa.Table) -> None:
    table.overwrite(given)


def write_together(table: Table, given: pa.Table) -> None:
    with table.writer("door") as writer:
        writer.write(given)


DOORS = (write_at_once, overwrite_all, write_together)


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("create", [CREATE, PLAIN])
def test_each_writer_refuses_what_breaks_one(
    door: Callable[[Table, pa.Table], None], create: str, catalog: Catalog
) -> None:
    sql(None, create, catalog)
    table = catalog.table("d.t")
    given = orders_of(1, -5, None, -7).select(table.schema.column_names)
    with pytest.raises(InvalidInputError, match=r"rows break a constraint: .*amount >= 0.* rows=2 of=4 .*'amount': -5"):
        door(table, given)
    assert catalog.table("d.t").latest_snapshot() is None
    door(table, given.filter(pa.array([True, False, True, False])))
    assert amounts_in(catalog.table("d.t")) == [1, None]  # null is not false


def test_a_delete_of_a_row_is_not_held_to_it(catalog: Catalog) -> None:
    sql(None, CREATE, catalog)
    table = catalog.table("d.t")
    table.write(orders_of(1, 2))
    table.write(orders_of(-1), kinds=pa.array(["-D"]))
    assert amounts_in(table) == [2]


def test_rows_that_are_there_are_looked_at_when_one_is_added(catalog: Catalog) -> None:
    sql(None, "CREATE TABLE d.t (id INT PRIMARY KEY NOT ENFORCED, amount INT, state STRING)", catalog)
    table = catalog.table("d.t")
    table.write(orders_of(1, -5))
    add = "ALTER TABLE d.t ADD CONSTRAINT positive CHECK (amount >= 0)"
    with pytest.raises(InvalidInputError, match=r"constraint=positive .*examples=\[\{'id': 1, 'amount': -5\}\]"):
        sql(None, add, catalog)
    assert "check.positive" not in catalog.table("d.t").schema.options
    table.write(orders_of(1, -5), kinds=pa.array(["-D", "-D"]))
    sql(None, add, catalog)
    with pytest.raises(InvalidInputError, match="constraint exists"):
        sql(None, add, catalog)
    with pytest.raises(ConflictError, match="constraint was added since the table was opened"):
        table.write(orders_of(-3))
    assert amounts_in(catalog.table("d.t")) == []
    sql(None, "ALTER TABLE d.t DROP CONSTRAINT positive; ALTER TABLE d.t DROP CONSTRAINT IF EXISTS positive", catalog)
    catalog.table("d.t").write(orders_of(-3))
    assert amounts_in(catalog.table("d.t")) == [-3]


def test_a_row_that_comes_while_one_is_added_takes_it_back(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    sql(None, PLAIN.replace(", CONSTRAINT positive CHECK (amount >= 0)", ""), catalog)
    late, alter = catalog.table("d.t"), catalog._files.alter_table
    pending = [orders_of(-5).select(["id", "amount"])]

    def slow(name: str, changes: list[SetOption]) -> object:
        if pending:
            late.write(pending.pop())
        return alter(name, changes)

    monkeypatch.setattr(catalog._files, "alter_table", slow)
    with pytest.raises(InvalidInputError, match="rows break a constraint"):
        catalog.alter_table("d.t", [SetOption("check.positive", "amount >= 0")])
    assert "check.positive" not in catalog.table("d.t").schema.options


def test_they_are_shown_and_made_again_from_what_is_shown(catalog: Catalog) -> None:
    sql(None, CREATE, catalog)
    shown = str(answer_to(catalog, "SHOW CREATE TABLE d.t")[0][0])
    assert "CONSTRAINT check_1 CHECK (amount >= 0)" in shown
    assert "CONSTRAINT known CHECK (state IN ('new', 'paid'))" in shown
    assert "check." not in shown
    described = answer_to(catalog, "DESCRIBE d.t")
    assert ("# Constraints", "", "") in described
    assert ("known", "CHECK (state IN ('new', 'paid'))", None) in described
    sql(None, shown.replace("d.t ", "d.again ", 1), catalog)
    sql(None, "CREATE TABLE d.alike LIKE d.t; CREATE TABLE d.free LIKE d.t (EXCLUDING CONSTRAINTS)", catalog)
    options = {name: catalog.table(f"d.{name}").schema.options for name in ("t", "again", "alike", "free")}
    checks = {name: {key for key in each if key.startswith("check.")} for name, each in options.items()}
    assert checks["t"] == checks["again"] == checks["alike"] == {"check.check_1", "check.known"}
    assert checks["free"] == set()


def test_a_column_in_one_is_renamed_in_it_and_not_dropped(catalog: Catalog) -> None:
    sql(None, CREATE, catalog)
    catalog.table("d.t").write(orders_of(1))
    sql(None, "ALTER TABLE d.t RENAME COLUMN amount TO total", catalog)
    assert catalog.table("d.t").schema.options["check.check_1"] == "total >= 0"
    with pytest.raises(InvalidInputError, match="in use and cannot be dropped: column=total used_by='constraint"):
        sql(None, "ALTER TABLE d.t DROP COLUMN total", catalog)
    with pytest.raises(InvalidInputError, match=r"rule=check_1 .*unknown column"):
        catalog.alter_table("d.t", [RenameColumn(("total",), "sum")])


def test_a_branch_that_began_before_one_is_not_merged(catalog: Catalog) -> None:
    sql(None, PLAIN.replace(", CONSTRAINT positive CHECK (amount >= 0)", ""), catalog)
    table = catalog.table("d.t")
    table.write(orders_of(1).select(["id", "amount"]))
    sql(None, "CALL sys.create_branch('d.t', 'dev')", catalog)
    catalog.table("d.t$branch_dev").write(orders_of(-5).select(["id", "amount"]))
    sql(None, "ALTER TABLE d.t ADD CONSTRAINT positive CHECK (amount >= 0)", catalog)
    with pytest.raises(ConflictError, match="main got a constraint after the branch began"):
        sql(None, "CALL sys.merge_branch('d.t', 'dev')", catalog)
    assert amounts_in(catalog.table("d.t")) == [1]
