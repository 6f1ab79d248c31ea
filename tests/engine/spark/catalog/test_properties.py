"""Notes that users make on tables: TBLPROPERTIES that are no options of Fluvial."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from engine import Catalog
from filestore.options.table_options import TableOptions, is_users_own
from lsm.errors import InvalidInputError


def shown_properties(spark: SparkSession, table: str) -> dict[str, str]:
    """But for what a table has anyway."""
    found = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    return {key: value for key, value in found.items() if key not in ("bucket", "file.format")}


@pytest.mark.parametrize(
    "key",
    [
        *("owner.team", "team", "created_by", "created.by.user", "a", "p1", "foo", "my.version", "my.buckets"),
        *("delta.autoOptimize.optimizeWrite", "data.classification", "transient_lastDdlTime", "my.log.kafka"),
    ],
)
def test_what_is_no_option_is_kept(key: str) -> None:
    assert is_users_own(key)
    assert TableOptions.parse({key: "x"}).texts_by_key() == {key: "x"}


@pytest.mark.parametrize(
    ("key", "near"),
    [
        *(
            ("buckets", "bucket"),
            ("bukets", "bucket"),
            ("merge_engine", "merge-engine"),
            ("mergeengine", "merge-engine"),
        ),
        *(
            ("file_format", "file.format"),
            ("snapsht.time-retained", "snapshot.time-retained"),
            ("log.fromat", "log.format"),
        ),
        *(("log.kafka", "log."), ("scan.moode", "scan.mode"), ("fields.a.foo", "fields.a"), ("provider", "")),
        *(("write.format.default", ""), ("merge-new", ""), ("changelog-new.thing", "changelog")),
    ],
)
def test_a_key_of_ours_that_does_not_exist_is_an_error_with_the_nearest(key: str, near: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"option={key} did_you_mean=.*{near}.* fix='.*my\.{key}'"):
        TableOptions.parse({key: "x"})


def test_properties_are_kept_shown_set_and_removed(spark: SparkSession, shop: Catalog) -> None:
    table = "fluvial.shop.noted"
    spark.sql(
        f"CREATE TABLE {table} (id INT PRIMARY KEY NOT ENFORCED, v STRING DEFAULT 'it''s' COMMENT 'x') COMMENT 'c' "
        "TBLPROPERTIES ('bucket' = '1', 'owner.team' = 'pay''ments', purpose = 'tests')"
    )
    assert shown_properties(spark, table) == {"owner.team": "pay'ments", "purpose": "tests"}
    assert spark.sql(f"SHOW TBLPROPERTIES {table} ('owner.team')").first().value == "pay'ments"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('owner.team' = 'risk', 'pii' = 'true')")
    spark.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('purpose')")
    spark.sql(f"INSERT INTO {table} VALUES (1, 'a')")
    kept = {"owner.team": "risk", "pii": "true"}
    assert shown_properties(spark, table) == kept
    with pytest.raises(PySparkException, match=r"option=buckets did_you_mean=\['bucket'"):
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('buckets' = '2')")
    text, before = spark.sql(f"SHOW CREATE TABLE {table}").first()[0], shop.table("shop.noted").schema
    spark.sql(f"DROP TABLE {table}")
    spark.sql(text)
    after = shop.table("shop.noted").schema
    assert (after.fields, after.options, after.comment) == (before.fields, before.options, before.comment)
    assert (after.primary_keys, shown_properties(spark, table)) == (before.primary_keys, kept)


def test_frames_give_properties(spark: SparkSession, shop: Catalog) -> None:
    table, rows = "fluvial.shop.noted_frame", spark.sql("SELECT 1 AS id")
    rows.writeTo(table).tableProperty("owner.team", "x").tableProperty("team", "y").create()
    assert shown_properties(spark, table) == {"owner.team": "x", "team": "y"}
    rows.writeTo(table).tableProperty("owner.team", "z").createOrReplace()
    assert shown_properties(spark, table) == {"owner.team": "z"}
    with pytest.raises(PySparkException, match="option=buckets"):
        rows.writeTo("fluvial.shop.noted_not").tableProperty("buckets", "1").create()
    assert not shop.table_exists("shop.noted_not")
