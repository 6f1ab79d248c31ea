"""The commands that write files: ``fluvial init``, ``fluvial package``, and the settings of ``fluvial spark-conf``."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from string import Template
from typing import Final

import click

from engine.broker.broker import Broker
from engine.cli.commands.survey import AskedTopics, from_topics_options, print_survey, sampled, surveyed, write_job
from engine.cli.output import console, json_option, notes, print_json
from engine.deploy.config.topic_job import topic_job
from engine.deploy.shipping import write_shipment, write_shipped
from engine.spark.session import submit_settings
from lsm.errors import InvalidInputError

_DEFAULT_BROKERS: Final = "localhost:9092"
_BROKER_DIR: Final = "FLUVIAL_BROKER_DIR"


@click.command("spark-conf")
@click.option("--local", "is_local", is_flag=True, help="For a local master, with checkpoints on a local disk.")
@click.option("--properties", is_flag=True, help="As spark-submit --properties-file or spark-defaults.conf.")
@json_option
def spark_conf(is_local: bool, properties: bool, as_json: bool) -> None:
    """Print the Spark settings of Fluvial's sessions, for sessions created elsewhere.

    For example: spark-submit $(fluvial spark-conf) my_script.py
    """
    settings = submit_settings(is_local=is_local)
    if as_json:
        print_json(settings)
        return
    line = "{} {}\n" if properties else "--conf {}={}\n"
    sys.stdout.write("".join(line.format(*each) for each in settings.items()))


@click.command()
@click.argument("directory")
@click.option(
    "--kafka",
    metavar="HOST:PORT",
    help="The same as --brokers. [default: from `fluvial broker start`, else localhost:9092]",
)
@click.option("--from-topic", "topic", metavar="TOPIC", help="A job file for this topic, by its records in JSON.")
@click.option("--table", metavar="D.T", help="With --from-topic: the table. [default: default.TOPIC]")
@from_topics_options
@click.option("--systemd", "kinds", flag_value="systemd", multiple=True, help="Only: units for systemd.")
@click.option("--kubernetes", "kinds", flag_value="kubernetes", multiple=True, help="Only: a Kubernetes deployment.")
@click.option("--spark-submit", "kinds", flag_value="spark-submit", multiple=True, help="Only: a script for clusters.")
@click.option("--airflow", "kinds", flag_value="airflow", multiple=True, help="Only: a DAG for Airflow.")
@click.option(
    "--monitoring",
    "kinds",
    flag_value="monitoring",
    multiple=True,
    help="Only: Prometheus' alert rules, Grafana's dashboard, and what runs both.",
)
@click.option("--examples", "kinds", flag_value="examples", multiple=True, help="Only: job files with every key.")
@json_option
def init(
    directory: str,
    kafka: str | None,
    topic: str | None,
    table: str | None,
    asked: AskedTopics | None,
    kinds: tuple[str, ...],
    as_json: bool,
) -> None:
    """Create a directory with a working job file, and a script that sends it changes.

    With --from-topic: a job file for this topic, with columns, types and key as its records have them. With
    --from-topics: one that follows the database of these change topics. With --systemd, --kubernetes, --spark-submit,
    --airflow, --monitoring, --examples: these files instead. Existing files are never overwritten.
    """
    if kinds:
        print_files(write_shipped(Path(directory), kinds), as_json=as_json)
        return
    if asked is not None:
        found, text = surveyed(asked)
        file = Path(directory) / f"{asked.database}.yaml"
        write_job(text, file)
        print_survey(found, is_json=as_json)
        notes().print(f"created {file}, next: fluvial cdc run {file}", soft_wrap=True, markup=False)
        return
    if topic is not None:
        brokers = kafka or _local_broker() or _DEFAULT_BROKERS
        file = Path(directory) / f"{topic}.yaml"
        write_job(topic_job(topic, sampled(topic, brokers), brokers=brokers, table=table), file)
        print_files([file], [f"fluvial plan {file}", f"fluvial run {file}"], as_json=as_json)
        return
    files = write_example(Path(directory), bootstrap_servers=kafka or _local_broker() or _DEFAULT_BROKERS)
    print_files(files, next_commands(directory), as_json=as_json)


def print_files(files: Sequence[Path], commands: Sequence[str] = (), *, as_json: bool) -> None:
    """Print files that were made, and commands to try with them."""
    if as_json:
        print_json([str(each) for each in files])
        return
    lines = ["created:", *(f"  {each}" for each in files)]
    lines += ["next:", *(f"  {each}" for each in commands)] if commands else []
    for line in lines:
        console().print(line, soft_wrap=True, markup=False)


@click.command()
@click.argument("directory")
@json_option
def package(directory: str, as_json: bool) -> None:
    """Write what spark-submit needs on a cluster without Fluvial: an archive, and the script to submit.

    Then: PYTHONPATH=DIRECTORY/fluvial.zip spark-submit --master ... --py-files DIRECTORY/fluvial.zip
    DIRECTORY/fluvial_job.py JOB.yaml
    """
    archive, script = write_shipment(Path(directory))
    if as_json:
        print_json({"archive": str(archive), "script": str(script)})
    else:
        console().print(f"PYTHONPATH={archive} spark-submit --py-files {archive} {script} JOB.yaml", soft_wrap=True)


def _local_broker() -> str | None:
    status = Broker(os.environ.get(_BROKER_DIR, ".fluvial/broker")).status()
    if status.running and len(status.client_options) > 1:
        raise InvalidInputError(
            f"the broker of this directory asks for a login: data_dir={status.data_dir} "
            f"fix='give --kafka {status.bootstrap_servers}, and put what fluvial broker status prints under log:'"
        )
    return status.bootstrap_servers if status.running else None


# ---- An example deployment: a working job file, and a script that sends changes to it


JOB_FILE: Final = "orders.yaml"
SCRIPT: Final = "send_changes.py"
_TEMPLATES: Final = Path(__file__).with_name("files")


def write_example(directory: Path, *, bootstrap_servers: str) -> list[Path]:
    """Write the example and return the paths of its files.

    Args:
        directory: created if missing.
        bootstrap_servers: brokers for the job and the script.

    Raises:
        InvalidInputError: one of the files exists, or the directory cannot be written. Nothing was written.
    """
    values = {"directory": str(directory), "bootstrap_servers": bootstrap_servers}
    templates = {JOB_FILE: "orders.yaml", SCRIPT: "send_changes.py.txt"}
    texts = {name: (_TEMPLATES / file).read_text(encoding="utf-8") for name, file in templates.items()}
    files = {directory / name: Template(text).substitute(values) for name, text in texts.items()}
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
