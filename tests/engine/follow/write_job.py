"""A service that writes numbered rows, and dies: it asks the table for the newest number, and goes on behind it.

python write_job.py WAREHOUSE TABLE LAST DIES_AT

It is killed a moment after it has written the number DIES_AT; 0: never.
"""

import os
import signal
import sys
import threading

import pyarrow as pa

from engine import Catalog

_MOMENT_S = 0.07


def main() -> None:
    warehouse, name, last, dies_at = sys.argv[1:]
    with Catalog(warehouse).table(name).writer("service", max_rows=7, max_delay_s=0.002) as writer:
        for number in range(writer.last_number + 1, int(last) + 1):
            rows = pa.table({"id": [2 * number, 2 * number + 1], "v": [f"v{number}"] * 2})
            done = writer.write(rows, number=number)
            if number == int(dies_at):
                threading.Timer(_MOMENT_S, os.kill, (os.getpid(), signal.SIGKILL)).start()
            if number % 10 == 0 and not writer.half_done_number:
                done.result()


if __name__ == "__main__":
    main()
