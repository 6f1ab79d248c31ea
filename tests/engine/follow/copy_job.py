"""A program that copies a table into a database, with its position in the same transaction; it kills itself.

    python copy_job.py WAREHOUSE TABLE DATABASE_URL DEADLY

DEADLY is a number of deliveries, and where the program dies at the last of them: ``3 before``, ``3 within``,
``3 after`` the transaction; ``0 never``.
"""

import os
import signal
import sys
from typing import Any

import sqlalchemy as sql

from engine import Catalog
from engine.follow.stream import StreamedChanges

PLACE = sql.text("SELECT place FROM follow_place")


def apply_changes(connection: sql.Connection, changes: StreamedChanges, deadly: str | None) -> None:
    """One delivery: its changes, counted, and the position behind it."""
    for row in changes.rows.to_pylist():
        values: dict[str, Any] = {"id": row["id"], "v": row["v"]}
        connection.execute(sql.text("DELETE FROM follow_copy WHERE id = :id"), values)
        if row["_row_kind"] in ("+I", "+U"):
            connection.execute(sql.text("INSERT INTO follow_copy (id, v) VALUES (:id, :v)"), values)
    if deadly == "within":
        os.kill(os.getpid(), signal.SIGKILL)
    count = {"n": changes.rows.num_rows, "place": str(changes.position)}
    connection.execute(sql.text("UPDATE follow_place SET place = :place, received = received + :n"), count)


def main() -> None:
    warehouse, table, url, number, point = sys.argv[1:]
    database = sql.create_engine(url)
    with database.connect() as connection:
        place = connection.execute(PLACE).scalar()
    stream = Catalog(warehouse).table(table).stream(place, follow=False, max_rows=2)
    for count, changes in enumerate(stream, 1):
        deadly = point if count == int(number) else None
        if deadly == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        with database.begin() as connection:
            apply_changes(connection, changes, deadly)
        if deadly == "after":
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
