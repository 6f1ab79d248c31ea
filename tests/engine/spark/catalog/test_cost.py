"""What a statement asks the JVM: each question costs as much as a small piece of a plan."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession

from engine import Catalog
from engine.runtime.spark_internals import jvm_of

RELEASE = "m\n"  # of an object that is not needed any more, at any time


def questions(spark: SparkSession, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often one run calls into the JVM, after one that does not count."""
    work()
    client = jvm_of(spark)[0]._gateway_client
    send, asked = client.send_command, []

    def sent(command: str, *arguments: Any, **named: Any) -> Any:
        asked.append(command)
        return send(command, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(client, "send_command", sent)
        work()
    return sum(not each.startswith(RELEASE) for each in asked)


def test_a_statement_asks_the_jvm_little(spark: SparkSession, shop: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 19, 1: measured 26, 34, 33 and 111; 24 of each are Spark's own but for the second, of which 9 are."""
    spark.sql("CREATE TABLE fluvial.shop.asked (id BIGINT, v STRING)")
    spark.sql("INSERT INTO fluvial.shop.asked SELECT id, 'v' FROM range(10)")

    def counted(work: Callable[[], object]) -> int:
        return questions(spark, work, monkeypatch)

    assert counted(lambda: spark.sql("SELECT id, v FROM fluvial.shop.asked WHERE id > 3").collect()) <= 30
    assert counted(lambda: spark.table("fluvial.shop.asked").collect()) <= 40
    assert counted(lambda: spark.sql("DESCRIBE fluvial.shop.asked").collect()) <= 38
    assert counted(lambda: spark.sql("INSERT INTO fluvial.shop.asked VALUES (1, 'x')").collect()) <= 120
    assert spark.table("fluvial.shop.asked").count() == 12
