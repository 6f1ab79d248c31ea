"""Answers requests, one line of JSON each, with pypaimon. Runs in .venv-peers, where nothing of ours is.

Rows travel as Arrow IPC files whose paths are in the request. A request that fails is answered with its error, and the
server goes on. See pypaimon_peer.py for the other end.
"""

import contextlib
import json
import sys
import traceback
from typing import Any

import pyarrow as pa
from pypaimon import CatalogFactory, Schema
from pypaimon.schema.data_types import DataField, DataTypeParser

PREDICATES = {
    "=": "equal",
    "<>": "not_equal",
    "<": "less_than",
    "<=": "less_or_equal",
    ">": "greater_than",
    ">=": "greater_or_equal",
    "in": "is_in",
    "is_null": "is_null",
    "is_not_null": "is_not_null",
    "starts_with": "startswith",
}


def create(request: dict[str, Any]) -> None:
    """Create a table from columns of (name, type as in the schema file)."""
    catalog = open_catalog(request)
    fields = [
        DataField(number, name, DataTypeParser.parse_data_type(kind))
        for number, (name, kind) in enumerate(request["columns"])
    ]
    schema = Schema(
        fields=fields,
        partition_keys=request["partition_by"],
        primary_keys=request["primary_key"],
        options=request["options"],
    )
    catalog.create_database(request["table"].split(".")[0], True)
    catalog.create_table(request["table"], schema, False)


def read(request: dict[str, Any]) -> None:
    """Write the table's rows to the IPC file `target`."""
    table = open_table(request)
    builder = table.new_read_builder()
    if request["where"]:
        predicates = builder.new_predicate_builder()
        conditions = []
        for column, operator, value in request["where"]:
            arguments = [] if operator in ("is_null", "is_not_null") else [value]
            conditions.append(getattr(predicates, PREDICATES[operator])(column, *arguments))
        builder = builder.with_filter(predicates.and_predicates(conditions))
    if request["columns"] is not None:
        builder = builder.with_projection(request["columns"])
    splits = builder.new_scan().plan().splits()
    rows = builder.new_read().to_arrow(splits)
    if rows is None:
        raise ValueError("pypaimon returned no table")
    with pa.ipc.new_file(request["target"], rows.schema) as sink:
        sink.write_table(rows)


def write(request: dict[str, Any]) -> None:
    """Append the rows of the IPC file `source` and commit."""
    with pa.ipc.open_file(request["source"]) as source:
        rows = source.read_all()
    builder = open_table(request).new_batch_write_builder()
    writing, committing = builder.new_write(), builder.new_commit()
    try:
        writing.write_arrow(rows)
        committing.commit(writing.prepare_commit())
    finally:
        writing.close()
        committing.close()


def options(request: dict[str, Any]) -> None:
    """Write the names of all options of tables to the file `target`, one on each line."""
    from pypaimon.common.options.config_option import ConfigOption
    from pypaimon.common.options.core_options import CoreOptions

    names = [each.key() for each in vars(CoreOptions).values() if isinstance(each, ConfigOption)]
    with open(request["target"], "w", encoding="utf-8") as target:
        target.write("\n".join(names))


def open_catalog(request: dict[str, Any]) -> Any:
    """The catalog of the warehouse."""
    return CatalogFactory.create({"warehouse": request["warehouse"], **request["catalog"]})


def open_table(request: dict[str, Any]) -> Any:
    """The table with its dynamic options."""
    table = open_catalog(request).get_table(request["table"])
    return table.copy(request["options"]) if request.get("options") else table


COMMANDS = {"create": create, "read": read, "write": write, "options": options}


def main() -> None:
    """Answer until the input ends. What pypaimon prints goes to stderr: stdout carries answers only."""
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        for line in sys.stdin:
            request = json.loads(line)
            try:
                COMMANDS[request["command"]](request)
                answer: dict[str, object] = {"ok": True}
            except Exception as error:  # noqa: BLE001  (the process edge: every failure becomes an answer)
                answer = {"ok": False, "error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
                answer["refused"] = isinstance(error, NotImplementedError)
            print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
