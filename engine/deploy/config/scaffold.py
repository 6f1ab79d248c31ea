"""An example deployment: a working job file, and a script that sends changes to it."""

from pathlib import Path
from string import Template
from typing import Final

from lsm.errors import InvalidInputError

JOB_FILE: Final = "orders.yaml"
SCRIPT: Final = "send_changes.py"

_JOB: Final = Template("""\
# What a run would do: fluvial plan $directory/orders.yaml. All keys of a job file: fluvial validate --schema
name: orders

warehouse: $${WAREHOUSE:-.fluvial/warehouse}

log:
  kafka.bootstrap.servers: $${KAFKA:-$bootstrap_servers}

tables:
  shop.orders:
    comment: one row per order, as it is now
    columns:
      id: BIGINT
      customer: STRING
      amount: DECIMAL(10, 2)
      state: STRING
    primary_key: [id]
    options: {bucket: 2, log.system: kafka}

pipelines:
- name: orders
  source:
    options: {subscribe: order-changes, value.format: debezium-json}
  limits: {records: 500000}
  transform: SELECT id, initcap(customer) AS customer, amount, state, _row_kind FROM source
  target: shop.orders
  trigger: available-now
  checkpoint: $${CHECKPOINTS:-.fluvial/checkpoints}/orders

# fluvial run $directory/orders.yaml --profile live: runs until it is stopped
profiles:
  live:
    on-failure: restart
    pipelines:
      orders: {trigger: {processing-time: 1s}}

spark:
  master: local[2]
  conf: {spark.ui.enabled: false}
""")
_SCRIPT: Final = Template('''\
"""Sends changes of orders to a topic, as Debezium would: each order is created, paid, and perhaps cancelled."""

import json
import os
import sys

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "order-changes"
SERVERS = os.environ.get("KAFKA", "$bootstrap_servers")
BROKERS = {"bootstrap.servers": SERVERS, "log_level": 2}  # no line for each attempt to connect
COUNT = int(sys.argv[1]) if len(sys.argv) > 1 else 1000


def order(number, state):
    customer = ("ada", "grace", "edsger", "barbara")[number % 4]
    return {"id": number, "customer": customer, "amount": f"{number % 100}.50", "state": state}


admin = AdminClient(BROKERS)
try:
    topics = admin.list_topics(timeout=8).topics
except KafkaException as error:
    sys.exit(f"the brokers do not answer: KAFKA={SERVERS} reason={error.args[0].str()}")
if TOPIC not in topics:
    admin.create_topics([NewTopic(TOPIC, num_partitions=2, replication_factor=1)])[TOPIC].result(30)

# an idempotent producer never sends a record twice, nor behind a later one
producer, sent = Producer({**BROKERS, "enable.idempotence": True}), 0
for number in range(COUNT):
    created, paid = order(number, "new"), order(number, "paid")
    changes = [("c", None, created), ("u", created, paid)]
    if number % 10 == 0:
        changes.append(("d", paid, None))
    for op, before, after in changes:
        value = json.dumps({"op": op, "before": before, "after": after})
        producer.produce(TOPIC, value, key=json.dumps({"id": number}))
        producer.poll(0)
        sent += 1
if producer.flush(60):
    sys.exit("some changes were not accepted by the brokers")
print(f"{sent} changes of {COUNT} orders sent to {TOPIC}")
''')


def write_example(directory: Path, *, bootstrap_servers: str) -> list[Path]:
    """Write the example and return the paths of its files.

    Args:
        directory: created if missing.
        bootstrap_servers: brokers for the job and the script.

    Raises:
        InvalidInputError: one of the files exists, or the directory cannot be written. Nothing was written.
    """
    values = {"directory": str(directory), "bootstrap_servers": bootstrap_servers}
    files = {directory / JOB_FILE: _JOB.substitute(values), directory / SCRIPT: _SCRIPT.substitute(values)}
    for path in files:
        if path.exists():
            raise InvalidInputError(f"file exists and is not overwritten: file={path} fix=name another directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in files.items():
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidInputError(
            f"directory cannot be written: directory={directory} reason={error.strerror} fix=name another directory"
        ) from error
    return list(files)


def next_commands(directory: str) -> list[str]:
    """Commands to try with the example."""
    job = f"{directory.rstrip('/')}/{JOB_FILE}"
    return [
        f"python {directory.rstrip('/')}/{SCRIPT}",
        f"fluvial plan {job}",
        f"fluvial run {job}",
        f"fluvial read shop.orders --config {job}",
    ]
