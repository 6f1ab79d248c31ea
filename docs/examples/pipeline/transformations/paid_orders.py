"""The paid orders of a table, in a second table that follows it."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, when

spark = SparkSession.active()
WAREHOUSE = spark.conf.get("shop.warehouse")


@dp.temporary_view
def changes() -> DataFrame:
    """Each change of the orders once, with its kind in ``_row_kind``."""
    orders = spark.readStream.format("fluvial").option("warehouse", WAREHOUSE).option("table", "shop.orders")
    return orders.option("read.changelog", True).load()


dp.create_sink("paid_orders", format="fluvial", options={"warehouse": WAREHOUSE, "table": "shop.paid_orders"})


@dp.append_flow(target="paid_orders")
def keep_paid() -> DataFrame:
    """An order that is not paid any more is deleted from the target, as one that is deleted from the source."""
    is_paid = (col("state") == "paid") & ~col("_row_kind").isin("-U", "-D")
    return spark.readStream.table("changes").withColumn("_row_kind", when(is_paid, "+U").otherwise("-D"))
