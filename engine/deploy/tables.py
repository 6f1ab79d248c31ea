"""The tables of a job: made where they are missing, refused where they are other tables than the file says."""

import logging

from engine.catalog import Catalog
from engine.deploy.table_changes import job_fields, table_differences
from engine.deploy.table_config import TableConfig
from engine.table import Table
from lsm.errors import InvalidInputError

logger = logging.getLogger("fluvial.job")


def ensure_table(catalog: Catalog, name: str, wanted: TableConfig) -> Table:
    """The table of a job file, made if it does not exist.

    Raises:
        InvalidInputError: it exists with other columns or another key; the statement that changes it is named.
    """
    catalog.create_table(
        name,
        job_fields(wanted),
        primary_key=wanted.primary_key,
        partition_by=wanted.partition_by,
        options=wanted.options,
        comment=wanted.comment,
        if_not_exists=True,
    )
    table = catalog.table(name)
    for difference in table_differences(name, table.schema, wanted):
        fix = difference.statement or "change the job file, or write to another table"
        if difference.is_refused:
            raise InvalidInputError(f"the table exists with {difference.fact} table={name} fix={fix}")
        logger.warning("the table exists with %s which stays: table=%s fix=%s", difference.fact, name, fix)
    return table
