"""``make demo-cdc``: pgbench writes to PostgreSQL, Debezium publishes, ``fluvial cdc`` follows, and both are compared.

Everything runs on this machine, with the servers of the tests: ``python -m tests.stores.cdc_demo --seconds 30``.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from engine.broker.broker import Broker
from tests.stores.debezium import PostgresSource
from tests.stores.kafka_connect import KafkaConnect
from tests.stores.postgres import Postgres
from tests.stores.tpcb import make_bank

_PAUSE_S: Final = 3.0
_FLUVIAL: Final = (sys.executable, "-m", "engine.cli")


def main(home: Path, seconds: int, rate: int) -> int:
    """Run it; 0: the tables are equal to the database.

    Args:
        home: a directory, made again.
        seconds: of load.
        rate: transactions in a second.
    """
    shutil.rmtree(home, ignore_errors=True)
    (home / "connect").mkdir(parents=True)
    job = home / "jobs" / "bank.yaml"
    with ExitStack() as stack:
        server = stack.enter_context(Postgres())
        brokers = stack.enter_context(Broker(home / "broker")).bootstrap_servers
        connect = stack.enter_context(KafkaConnect(home / "connect", brokers))
        print("1. PostgreSQL, a broker and Debezium run; pgbench makes its tables")
        source = PostgresSource("bank", server, connect, brokers)
        stack.callback(source.close)
        script = make_bank(source, home, accounts=10_000)
        source.start()
        print("2. fluvial init --from-topics: the job file, from the records that are there", flush=True)
        topics = ("--from-topics", r"bank\.public\..*", "--database", "bank", "--kafka", brokers)
        subprocess.run([*_FLUVIAL, "init", str(job.parent), *topics], check=True)
        text = job.read_text(encoding="utf-8").replace("${WAREHOUSE:-.fluvial/warehouse}", str(home / "warehouse"))
        job.write_text(text.replace("  database: bank\n", "  database: bank\n  commit: {every: 2 seconds}\n"), "utf-8")
        print("3. fluvial cdc run: first what is there", flush=True)
        load = [*source.pgbench_command("-n", "-T", str(seconds), "-R", str(rate), "-f", str(script))]
        with (home / "run.log").open("wb") as log:
            follower = subprocess.Popen([*_FLUVIAL, "cdc", "run", str(job), "--quiet"], stdout=log, stderr=log)
            try:
                while not _show_lag(job):
                    assert follower.poll() is None, (home / "run.log").read_text(encoding="utf-8")
                    time.sleep(_PAUSE_S)
                print(f"4. {rate} transactions a second for {seconds} s, which it follows", flush=True)
                with subprocess.Popen(load, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as running:
                    while running.poll() is None:
                        assert follower.poll() is None, (home / "run.log").read_text(encoding="utf-8")
                        _show_lag(job)
                        time.sleep(_PAUSE_S)
                print("5. fluvial cdc verify: every table, value by value", flush=True)
                compare = ("cdc", "verify", str(job), "--dsn", source.url, "--wait", "600")
                return subprocess.run([*_FLUVIAL, *compare], check=False).returncode
            finally:
                follower.send_signal(signal.SIGTERM)
                follower.wait(60)


def _show_lag(job: Path) -> bool:
    done = subprocess.run([*_FLUVIAL, "cdc", "status", str(job), "--json"], capture_output=True, text=True, check=False)
    tables = json.loads(done.stdout)["tables"] if done.returncode == 0 else []
    lags = [(each["table"].removeprefix("pgbench_"), each["records_behind"], each["seconds_behind"]) for each in tables]
    shown = "; ".join(f"{name} {records} records, {seconds or 0:.0f} s" for name, records, seconds in lags)
    print(f"   behind: {shown}" if shown else "   the job starts", flush=True)
    return bool(tables)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.stores.cdc_demo", description="PostgreSQL to tables, equal.")
    parser.add_argument("--dir", default=".demo/cdc", help="directory of the demo (default: %(default)s)")
    parser.add_argument("--seconds", type=int, default=60, help="of load (default: %(default)s)")
    parser.add_argument("--rate", type=int, default=20, help="transactions in a second (default: %(default)s)")
    given = parser.parse_args()
    sys.exit(main(Path(given.dir).absolute(), given.seconds, given.rate))
