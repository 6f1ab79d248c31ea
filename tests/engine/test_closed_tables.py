"""Tables that cannot be read here are listed, described and dropped by every door, and read or changed by none."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import engine
from engine import Catalog
from lsm.errors import CorruptDataError, InvalidInputError

SCHEMA: Final = pa.schema([pa.field("k", pa.int64(), nullable=False), ("v", pa.string())])
NAME: Final = "db.closed"
Fluvial = Callable[..., tuple[int, str, str]]


def with_column(kind: object) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["fields"].append({"id": 7, "name": "c", "type": kind})


def with_option(key: str, value: str) -> Callable[[dict[str, Any]], None]:
    return lambda body: body["options"].update({key: value})


KINDS: Final[Mapping[str, tuple[Callable[[dict[str, Any]], None], str]]] = {
    "blob": (with_column("BLOB"), "column=c type=BLOB"),
    "vector": (with_column({"type": "VECTOR", "element": "FLOAT", "length": 3}), "column=c type=VECTOR"),
    "geometry": (with_column("GEOMETRY"), "column=c type=GEOMETRY"),
    "data evolution": (with_option("data-evolution.enabled", "true"), "option=data-evolution.enabled"),
    "format table": (with_option("type", "format-table"), "option=type value=format-table"),
    "object table": (with_option("type", "object-table"), "option=type value=object-table"),
    "unknown type": (with_option("type", "dream"), "option=type"),
    "file format": (with_option("file.format", "lance"), "option=file.format"),
    "merge engine": (with_option("merge-engine", "newest-of-all"), "option=merge-engine"),
    "elsewhere": (with_option("data-file.path-directory", "../../elsewhere"), "data-file.path-directory"),
    "unknown option": (with_option("fields.new-way", "x"), "option=fields.new-way"),
}


def schema_file(warehouse: Path) -> Path:
    return warehouse / "db.db" / "closed" / "schema" / "schema-0"


def make_closed(catalog: Catalog, change: Callable[[dict[str, Any]], None]) -> None:
    catalog.create_table(NAME, SCHEMA, primary_key=["k"], options={"bucket": "1"}, comment="not ours")
    catalog.table(NAME).write(pa.table({"k": [1], "v": ["a"]}, SCHEMA))
    path = schema_file(Path(catalog.warehouse))
    body = json.loads(path.read_text())
    change(body)
    path.write_text(json.dumps(body))


@pytest.mark.parametrize(("kind", "metastore"), [*((kind, "filesystem") for kind in KINDS), ("blob", "jdbc")])
def test_a_closed_table_is_described_and_dropped_and_no_way_leads_to_its_rows(
    tmp_path: Path, kind: str, metastore: str
) -> None:
    change, words = KINDS[kind]
    options = {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/c.db"} if metastore == "jdbc" else {}
    catalog = Catalog(str(tmp_path / "w"), options=options)
    make_closed(catalog, change)
    assert catalog.list_tables("db") == ["closed"]
    with pytest.raises(InvalidInputError) as refused:
        catalog.table(NAME)
    assert words in str(refused.value)
    for act in (
        lambda: catalog.described(NAME).read().to_arrow(),
        lambda: catalog.described(NAME).files.write(pa.table({"k": [1], "v": ["a"]}, SCHEMA)),
        lambda: catalog.described(NAME).files.compact(full=True),
    ):
        with pytest.raises(InvalidInputError):
            act()
    described = catalog.described(NAME)
    assert described.schema.column_names[:2] == ("k", "v")
    assert (described.schema.primary_keys, described.schema.comment) == (("k",), "not ours")
    assert words in str(described.closed)
    catalog.rename_table(NAME, "db.renamed")
    assert catalog.drop_table("db.renamed") == []
    assert catalog.list_tables("db") == []
    assert [*(tmp_path / "w" / "db.db").iterdir()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_statements_and_system_tables_describe_a_closed_table(tmp_path: Path, kind: str) -> None:
    change, words = KINDS[kind]
    catalog = Catalog(str(tmp_path / "w"))
    make_closed(catalog, change)

    def sql(text: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = engine.sql(None, text, catalog).to_pylist()
        return found

    assert [row["tableName"] for row in sql("SHOW TABLES IN db")] == ["closed"]
    assert [row["col_name"] for row in sql(f"DESCRIBE {NAME}")][:2] == ["k", "v"]
    facts = {row["col_name"]: row["data_type"] for row in sql(f"DESCRIBE EXTENDED {NAME}")}
    assert words in facts["problem"]
    assert facts["file.path"] == str(tmp_path / "w" / "db.db" / "closed")
    assert "CREATE TABLE" in sql(f"SHOW CREATE TABLE {NAME}")[0]["createtab_stmt"]
    stored = json.loads(schema_file(tmp_path / "w").read_text())["options"]
    assert {row["key"]: row["value"] for row in sql(f"SHOW TBLPROPERTIES {NAME}")} == stored
    assert [row["col_name"] for row in sql(f"SHOW COLUMNS IN {NAME}")][:2] == ["k", "v"]
    for system in ("options", "schemas", "snapshots", "tags", "branches"):
        catalog.system_table(f"{NAME}${system}").to_arrow()
    with pytest.raises(InvalidInputError) as raised:
        catalog.system_table(f"{NAME}$files").to_arrow()
    assert words in str(raised.value)
    (row,) = catalog.system_table("sys.tables").to_arrow().to_pylist()
    assert (row["primary_key"], row["partitioned"], row["record_count"]) == (True, False, None)
    assert words in row["problem"]
    options = catalog.system_table("sys.all_table_options").to_arrow().to_pylist()
    assert {each["key"]: each["value"] for each in options} == stored
    for text in (f"SELECT * FROM {NAME}", f"INSERT INTO {NAME} VALUES (1, 'x')", f"ALTER TABLE {NAME} DROP COLUMN v"):
        with pytest.raises(InvalidInputError) as raised:
            sql(text)
        assert words in str(raised.value)
    sql(f"DROP TABLE {NAME}")
    assert sql("SHOW TABLES IN db") == []


@pytest.mark.parametrize("kind", ["blob", "file format"])
def test_commands_describe_and_drop_a_closed_table(tmp_path: Path, fluvial: Fluvial, kind: str) -> None:
    change, words = KINDS[kind]
    place = ("--warehouse", str(tmp_path / "w"))
    make_closed(Catalog(str(tmp_path / "w")), change)
    code, out, _ = fluvial("describe", NAME, "--json", *place)
    assert (code, [each["name"] for each in json.loads(out)["columns"]][:2]) == (0, ["k", "v"])
    assert words in json.loads(out)["problem"]
    assert words in fluvial("describe", NAME, *place)[2].replace("\n", " ")
    code, out, _ = fluvial("config", NAME, "--json", *place)
    assert code == 0
    code, _, error = fluvial("read", NAME, *place)
    assert (code, words in error) == (2, True)
    assert fluvial("sql", f"DROP TABLE {NAME}", *place)[0] == 0
    assert Catalog(str(tmp_path / "w")).list_tables("db") == []


def test_sparks_own_sql_describes_and_drops_a_closed_table(spark: SparkSession, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path / "w"))
    engine.install(spark, catalog)
    try:
        for kind in ("blob", "file format", "format table"):
            change, words = KINDS[kind]
            make_closed(catalog, change)
            assert [row["tableName"] for row in spark.sql("SHOW TABLES IN fluvial.db").collect()] == ["closed"]
            assert [each.name for each in spark.catalog.listTables("fluvial.db")] == ["closed"]
            assert spark.catalog.tableExists(f"fluvial.{NAME}")
            names = [row["col_name"] for row in spark.sql(f"DESCRIBE fluvial.{NAME}").collect()]
            assert names[:2] == ["k", "v"]
            with pytest.raises(IllegalArgumentException) as raised:
                spark.sql(f"SELECT * FROM fluvial.{NAME}").collect()
            assert words in str(raised.value)
            spark.sql(f"DROP TABLE fluvial.{NAME}")
            assert catalog.list_tables("db") == []
    finally:
        engine.uninstall(spark)


def test_a_table_whose_schema_cannot_be_decoded_is_dropped_by_force(tmp_path: Path) -> None:
    """Its log, if it had one, is not known: that is said, and has to be asked for."""
    catalog = Catalog(str(tmp_path / "w"))
    for change in (with_column("POINT(3)"), lambda body: body.pop("fields"), lambda body: body.update(version=99)):
        make_closed(catalog, change)
        assert catalog.list_tables("db") == ["closed"]
        with pytest.raises((CorruptDataError, InvalidInputError), match=f"fix='DROP TABLE {NAME} FORCE"):
            catalog.drop_table(NAME)
        catalog.drop_table(NAME, force=True)
        assert catalog.list_tables("db") == []
        assert [*(tmp_path / "w" / "db.db").iterdir()] == []
