"""Runs queries of Spark SQL over a directory of Iceberg tables; started as a program, by the Python of Spark 3.5.

    python tests/peers/iceberg_statements.py JAR WAREHOUSE < QUERIES.json

Nothing of Fluvial is imported; see ``iceberg_spark``.
"""

import json
import sys

from pyspark.sql import SparkSession


def main() -> None:
    jar, warehouse = sys.argv[1:]
    settings = {
        "spark.jars": jar,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "hadoop",
        "spark.sql.catalog.ice.warehouse": warehouse,
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    found = [[list(row) for row in spark.sql(text).collect()] for text in json.load(sys.stdin)]
    spark.stop()
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main()
