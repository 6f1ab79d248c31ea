"""The place of the story: a warehouse with one table, and job files, right and wrong."""

from pathlib import Path

import pyarrow as pa

from engine import Catalog, sql

JOB = """name: shop
warehouse: lake
tables:
  shop.orders:
    columns: {id: INT, amount: INT, state: STRING}
    primary_key: [id]
pipelines:
- name: orders
  source: {format: json, options: {path: in}}
  target: shop.orders
  checkpoint: checkpoints/orders
"""
FILES = {
    "job.yaml": JOB,
    "bad-yaml.yaml": JOB.replace("name: shop", "name: [shop"),
    "bad-key.yaml": JOB.replace("  checkpoint:", "  chekpoint:"),
    "bad-target.yaml": JOB.replace("target: shop.orders", "target: shop.order"),
    "bad-rule.yaml": JOB + "  expect: {late: amount > rand()}\n",
    "bad-type.yaml": JOB.replace("amount: INT", "amount: INTT"),
}


def prepare(home: Path) -> None:
    """Make the place in an empty directory."""
    for name, text in FILES.items():
        (home / name).write_text(text, encoding="utf-8")
    (home / "in").mkdir()
    catalog = Catalog(f"{home}/lake")
    columns = "id INT PRIMARY KEY NOT ENFORCED, amount INT, state STRING"
    sql(None, f"CREATE TABLE shop.orders ({columns}) WITH ('bucket' = '2', 'log.system' = 'none')", catalog)
    orders = catalog.table("shop.orders")
    for amount in (5, 7):
        orders.write(pa.table({"id": [1, 2], "amount": [amount, 2], "state": ["new", "paid"]}))
    sql(None, "CALL sys.create_tag('shop.orders', 'eod')", catalog)
