"""The commands ``fluvial create``, ``drop``, ``rename`` and ``topics``: tables, and topics beside them, by name."""

from typing import NoReturn

import click

from engine.cli.output import console, json_option, print_json, print_table
from engine.cli.place import TABLE_NAME, WarehousePlace, given_options, with_optional_place, with_place
from engine.cli.reading import listed_tables
from engine.dialect.ddl.ddl_text import quoted_text
from engine.dialect.ddl.table_parts import quoted_where_needed
from engine.dialect.scope.context import SqlContext
from engine.dialect.session import SqlSession
from engine.log.catalog_login import CatalogLogin
from filestore.options.catalog_options import CatalogOptions
from filestore.options.table_options import TableOptions
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from lsm.errors import InvalidInputError


@click.command()
@click.argument("table")
@click.argument("columns")
@click.option("--partitioned-by", metavar="COLUMNS", help="Partition columns: dt,country.")
@click.option("--option", "options", metavar="KEY=VALUE", multiple=True, help="Option of the table; repeatable.")
@click.option("--if-not-exists", is_flag=True, help="Do nothing if there is a table of the name.")
@with_place
def create(
    place: WarehousePlace,
    table: str,
    columns: str,
    partitioned_by: str | None,
    options: tuple[str, ...],
    if_not_exists: bool,
) -> None:
    """Create a table, with columns as in SQL.

    COLUMNS are 'id BIGINT PRIMARY KEY NOT ENFORCED, name STRING'.
    """
    text = f"CREATE TABLE {'IF NOT EXISTS ' if if_not_exists else ''}{_name(table)} ({columns})"
    if partitioned_by is not None:
        text += (
            f" PARTITIONED BY ({', '.join(quoted_where_needed(each.strip()) for each in partitioned_by.split(','))})"
        )
    if options:
        pairs = given_options(options, "an option").items()
        text += f" WITH ({', '.join(f'{quoted_text(key)} = {quoted_text(value)}' for key, value in pairs)})"
    SqlSession(SqlContext(catalog=place.catalog, open_spark=_no_spark)).execute(text)
    console().print(f"created {table}", soft_wrap=True, markup=False)


@click.command()
@click.argument("table", type=TABLE_NAME)
@click.option("--if-exists", is_flag=True, help="Do nothing if there is no such table.")
@with_place
def drop(place: WarehousePlace, table: str, if_exists: bool) -> None:
    """Delete a table and the topic that it made."""
    place.catalog.drop_table(table, if_exists=if_exists)
    console().print(f"dropped {table}", soft_wrap=True, markup=False)


@click.command()
@click.argument("table", type=TABLE_NAME)
@click.argument("new_name")
@with_place
def rename(place: WarehousePlace, table: str, new_name: str) -> None:
    """Give a table another name.

    Its readers and writers have to open it again.
    """
    place.catalog.rename_table(table, new_name)
    console().print(f"renamed {table} to {new_name}", soft_wrap=True, markup=False)


@click.command()
@click.option("--brokers", metavar="HOST:PORT", help="Brokers to ask. [default: those of the warehouse's tables]")
@json_option
@with_optional_place
def topics(place: WarehousePlace | None, brokers: str | None, as_json: bool) -> None:
    """List the topics of brokers and their tables.

    Each with its partitions, and the table that has it as its log.
    """
    defaults = {} if place is None else CatalogOptions.parse(place.options).table_defaults
    options = TableOptions.parse({}, strict=False).with_only(CatalogLogin(defaults).opening(defaults))
    given = dict(options.log_kafka) | ({} if brokers is None else {"bootstrap.servers": brokers})
    if "bootstrap.servers" not in given:
        raise InvalidInputError("no brokers: fix='give --brokers HOST:PORT, or a warehouse with log.kafka.* options'")
    cluster = LogTopics(KafkaProperties.parse(given))
    cluster.check_reachable()
    tables = {} if place is None else {each["topic"]: each["table"] for each in listed_tables(place.catalog)}
    found = [
        {"topic": name, "partitions": count, "table": tables.get(name)}
        for name, count in sorted(cluster.partition_counts().items())
    ]
    if as_json:
        print_json(found)
        return
    rows = [(each["topic"], each["partitions"], each["table"]) for each in found]
    print_table(str(given["bootstrap.servers"]), ("topic", "partitions", "table"), rows, numbers=("partitions",))


def _name(table: str) -> str:
    """A table's name in a statement. Raises: InvalidInputError: it has no database, or a branch."""
    database, dot, name = table.partition(".")
    if not dot or not database or not name:
        raise InvalidInputError(f"a table is named database.table: given={table}")
    return f"{quoted_where_needed(database)}.{quoted_where_needed(name)}"


def _no_spark() -> NoReturn:
    raise InvalidInputError("columns are expected, and no query: fix=fluvial sql 'CREATE TABLE ... AS SELECT ...'")
