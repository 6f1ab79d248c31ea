"""The commands that write files: ``fluvial init``, ``fluvial package``, and the settings of ``fluvial spark-conf``."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from engine.broker.broker import Broker
from engine.cli.commands.survey import AskedTopics, from_topics_options, print_survey, sampled, surveyed, write_job
from engine.cli.output import console, json_option, notes, print_json
from engine.deploy.config.scaffold import next_commands, write_example
from engine.deploy.config.topic_job import topic_job
from engine.deploy.shipped_files import write_shipped
from engine.deploy.shipping import write_shipment
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
    --airflow, --examples: these files instead. Existing files are never overwritten.
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
