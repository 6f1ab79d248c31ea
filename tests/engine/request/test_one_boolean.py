"""True and false are written alike wherever an option is given."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from engine.catalog import Catalog
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.kafka.options import KafkaSourceOptions
from engine.lineage.settings import Storage, options_of_new
from engine.procedures.registry import Parameter, ParameterKind
from engine.request.writer_options import BATCH_WRITE_KEYS, SINK_KEYS, WriterOptions
from engine.table import Table
from engine.write.sink import StreamSink, sink
from filestore.options.catalog_options import CatalogOptions
from filestore.options.table_options import TableOptions
from filestore.snapshot.snapshot import CHANGES_KEY
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([pa.field("p", pa.string()), pa.field("n", pa.int64())])


KAFKA = {"kafka.bootstrap.servers": "b:1", "subscribe": "t"}
PLACES: dict[str, Callable[[str], object]] = {
    "table": lambda text: TableOptions.parse({"write-only": text}).write_only,
    "column": lambda text: (
        TableOptions.parse({"fields.a.ignore-retract": text, "merge-engine": "aggregation"}, primary_key=["k"])
        .field_options("a")
        .ignore_retract
    ),
    "catalog": lambda text: CatalogOptions.parse({"lock.enabled": text}).lock_enabled,
    "sink": lambda text: WriterOptions.parse({"write-only": text}, SINK_KEYS).write_only,
    "tracking": lambda text: WriterOptions.parse({"change-tracking": text}, BATCH_WRITE_KEYS).change_tracking,
    "kafka": lambda text: KafkaSourceOptions.parse({**KAFKA, "failOnDataLoss": text}).fail_on_data_loss,
    "lineage": lambda text: options_of_new({"table-lineage": text}, Storage.LOCAL)["table-lineage"] == "true",
    "procedure": lambda text: Parameter(name="p", kind=ParameterKind.BOOLEAN, doc="", is_required=True).accepted(text),
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("TRUE", True), (" true", True), ("false", False), ("False ", False)]
)
def test_case_and_blanks_do_not_matter(place: str, text: str, value: bool) -> None:
    assert PLACES[place](text) is value


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", ["nonsense", "yes", "1", "", "on"])
def test_anything_else_is_refused_with_the_name_and_the_value(place: str, text: str) -> None:
    with pytest.raises(InvalidInputError, match=repr(text)):
        PLACES[place](text)


def boolean_table(catalog: Catalog) -> Table:
    catalog.create_database("d", if_not_exists=True)
    return catalog.create_table("d.t", SCHEMA)


@pytest.mark.parametrize("text", ["nonsense", "yes", "1"])
def test_a_sink_refuses_what_is_no_boolean_with_option_value_and_fix(text: str, tmp_path: Path) -> None:
    table = boolean_table(Catalog(str(tmp_path)))
    with pytest.raises(InvalidInputError, match=f"option=write-only value='{text}' expected='true or false' fix="):
        sink(table, {"write-only": text})


def test_a_sink_and_a_batch_write_take_any_case(tmp_path: Path) -> None:
    table = boolean_table(Catalog(str(tmp_path)))
    assert isinstance(sink(table, {"change-tracking": "FALSE", "write-only": " TRUE"}), StreamSink)
    done = table.write(pa.table({"p": ["a"], "n": [1]}), options={"change-tracking": "FALSE"})
    assert done.snapshot is not None
    assert done.snapshot.properties[CHANGES_KEY] == "none"


@pytest.mark.parametrize(("key", "near"), [("change-trakking", "change-tracking"), ("write-onyl", "write-only")])
def test_a_batch_write_refuses_unknown_options_with_the_nearest(key: str, near: str, tmp_path: Path) -> None:
    table = boolean_table(Catalog(str(tmp_path)))
    with pytest.raises(InvalidInputError, match=f"unknown write option: {key} did_you_mean={near}"):
        table.write(pa.table({"p": ["a"], "n": [1]}), options={key: "true"})


@pytest.mark.parametrize(("text", "is_tracked"), [("FALSE", False), (" false", False), ("True", True), ("yes", None)])
def test_sql_reads_the_option_of_a_partition_as_every_other(text: str, is_tracked: bool | None, tmp_path: Path) -> None:
    catalog = Catalog(str(tmp_path))
    catalog.create_database("d")
    catalog.create_table("d.t", SCHEMA, partition_by=["p"])
    session = SqlSession(SqlContext(catalog=catalog, open_spark=lambda: pytest.fail("no Spark")))
    alter = f"ALTER TABLE d.t PARTITION (p='a') SET ('change-tracking'='{text}')"
    if is_tracked is None:
        with pytest.raises(InvalidInputError, match="option=change-tracking value='yes' expected='true or false'"):
            session.execute(alter)
        return
    session.execute(alter)
    options = catalog.table("d.t").options
    assert (options.change_tracking_untracked_partitions is None) is is_tracked
