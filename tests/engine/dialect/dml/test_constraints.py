"""CHECK constraints hold for every statement that writes."""

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException

from filestore.evolution.schema_change import SetOption
from tests.engine.dialect.dml.conftest import KEY, Tables

pytestmark = pytest.mark.spark

BAD = "(7L, -1, 'x')"
WAYS = (
    f"INSERT INTO {{t}} VALUES {BAD}",
    f"INSERT OVERWRITE {{t}} VALUES {BAD}",
    "UPDATE {t} SET v = -1 WHERE id = 1",
    f"MERGE INTO {{t}} AS a USING (VALUES {BAD}) AS q(id, v, name) ON a.id = q.id WHEN NOT MATCHED THEN INSERT *",
    "MERGE INTO {t} AS a USING (VALUES (1L, -1, 'x')) AS q(id, v, name) ON a.id = q.id WHEN MATCHED THEN UPDATE SET *",
)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("is_keyed", [True, False])
def test_every_statement_is_held_to_a_constraint(tables: Tables, is_keyed: bool) -> None:
    table = tables.keyed() if is_keyed else tables.make("t", options={"deletion-vectors.enabled": "true"})
    if not is_keyed:
        table.write(pa.table({"id": [1, 2], "v": [10, 20], "name": ["a", "b"]}, schema=KEY))
    catalog = tables.context.catalog
    name = f"default.{tables.names['t']}"
    catalog.alter_table(name, [SetOption("check.positive", "v >= 0")])
    before = catalog.table(name).read().to_arrow().sort_by("id")
    for way in WAYS if is_keyed else WAYS[:-1]:  # the last one needs a key
        assert "rows break a constraint" in tables.refused(way), way
    tables.run("INSERT INTO {t} VALUES (8L, NULL, 'null passes')")
    tables.run("DELETE FROM {t} WHERE id = 8")
    assert catalog.table(name).read().to_arrow().sort_by("id") == before


def test_frames_are_held_to_a_constraint_by_each_way_to_write_them(tables: Tables) -> None:
    """Nothing is written."""
    tables.keyed()
    catalog, spark = tables.context.catalog, tables.context.spark
    name = f"default.{tables.names['t']}"
    catalog.alter_table(name, [SetOption("check.positive", "v >= 0")])
    before = catalog.table(name).latest_snapshot()
    frame = spark.createDataFrame([(7, 5, "x"), (8, -1, "y")], "id LONG, v INT, name STRING")
    place = {"warehouse": str(catalog.warehouse), "table": name}
    words = "rows break a constraint: .*constraint=positive"
    with pytest.raises(PySparkException, match=words):
        catalog.table(name).append(frame)
    with pytest.raises(PySparkException, match=words):
        frame.write.format("fluvial").options(**place).mode("append").save()
    with pytest.raises(PySparkException, match=words):
        frame.write.format("fluvial").options(**place).mode("overwrite").save()
    assert catalog.table(name).latest_snapshot() == before
