"""The command ``fluvial cdc``: a whole database from its change topics, and what its tables are doing."""

import click

from engine.cli.cdc_verify import verify


@click.group()
def cdc() -> None:
    """Keep all tables of a database equal, from the topics of its changes."""


cdc.add_command(verify)
