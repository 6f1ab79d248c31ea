"""A table in Google's and in Azure's store beside the same table in S3: a commit of 1,000 rows, and a read of all.

    python -m benchmarks.layout.bench_object_stores [--quick | --tiny]

The stores are those of the tests: Azurite, S3Proxy, and S3Proxy by Google's protocol. Each is behind the same proxy,
which counts requests and holds each for 20 ms, as far as a store of the same region is away; so the time is that of the
requests that wait for each other, and little of it is the emulator's. Two lines for each act: Azure and Google beside
S3. Budget: 1.2 x the time of S3, and no more requests.
"""

import itertools
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pyarrow as pa

from benchmarks.harness import measure, sized
from filestore.catalog.catalog import FileCatalog
from filestore.table import FileTable
from tests.stores.azurite import ACCOUNT, ACCOUNT_KEY, Azurite, endpoint_of_account
from tests.stores.faulty_proxy import FaultyProxy, faulty_proxy
from tests.stores.google_store import TOKEN, as_google, as_s3
from tests.stores.object_store import ObjectStore, S3Proxy

DISTANCE_S: Final = 0.02
BUDGET: Final = 1.2
S3 = "S3"
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int64()), ("v", pa.string())])
_turns = itertools.count()


def rows(count: int) -> pa.Table:
    turn = next(_turns)
    ids = list(range(count))
    return pa.table([ids, [turn] * count, [f"value-{turn}-{number}" for number in ids]], schema=SCHEMA)


@dataclass(frozen=True)
class Place:
    """A store behind its proxy, and a table in it."""

    proxy: FaultyProxy
    table: FileTable

    def requests(self, act: Callable[[FileTable], object]) -> int:
        """How many one act sends."""
        before = len(self.proxy.requests)
        act(self.table)
        return len(self.proxy.requests) - before


def from_afar(proxy: FaultyProxy) -> None:
    def hold(_method: str, _path: str) -> bool:
        time.sleep(DISTANCE_S)
        return False

    proxy.loses_request = hold


@contextmanager
def places(commits: int, count: int) -> Iterator[dict[str, Place]]:
    """A key table of so many commits in each store, opened by a catalog of its own."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fluvial-bench-")))
        amazon: ObjectStore = stack.enter_context(S3Proxy(home / "s3"))
        azure = stack.enter_context(Azurite(home))
        at_azure, at_google, at_amazon = (
            stack.enter_context(faulty_proxy(each)) for each in (azure.endpoint, amazon.endpoint, amazon.endpoint)
        )
        at_google.to_store, at_google.to_client = as_s3, as_google
        roots: dict[str, tuple[FaultyProxy, str, Mapping[str, str]]] = {
            "Azure": (
                at_azure,
                f"az://{azure.make_container('lake')}",
                {
                    "azure.endpoint": endpoint_of_account(at_azure.endpoint),
                    "azure.account": ACCOUNT,
                    "azure.account-key": ACCOUNT_KEY,
                },
            ),
            "Google": (
                at_google,
                f"gs://{amazon.make_bucket('google')}",
                {"gs.endpoint": at_google.endpoint, "gs.token": TOKEN},
            ),
            S3: (
                at_amazon,
                f"s3://{amazon.make_bucket('lake')}",
                {**amazon.options, "s3.endpoint": at_amazon.endpoint},
            ),
        }
        found = {}
        for name, (proxy, root, options) in roots.items():
            catalog = FileCatalog(f"{root}/lake", options)
            table = catalog.create_table(
                "bench.t", SCHEMA, primary_key=["id"], options={"bucket": "1", "write-only": "true"}
            )
            for _ in range(commits):
                table.write(rows(count))
            found[name] = Place(proxy, table)
        for place in found.values():
            from_afar(place.proxy)
        yield found


def compare(name: str, stores: Mapping[str, Place], act: Callable[[FileTable], object], count: int, turns: int) -> None:
    """The lines of one act."""
    requests = {each: place.requests(act) for each, place in stores.items()}
    work = {each: (lambda place=place: act(place.table)) for each, place in stores.items()}
    found = measure(name, work, rows=count, repeats=turns)
    for each in stores:
        if each != S3:
            slower = 1 / found.ratio(each, S3)
            is_met = slower <= BUDGET and requests[each] <= requests[S3]
            met = "--tiny" in sys.argv[1:] or is_met
            facts = {"store": each, "time_ratio": round(slower, 2), "requests": requests, "budget": BUDGET, "met": met}
            print(found.line(peer=S3, variant=each, **facts), flush=True)


def main() -> None:
    count, commits, repeats = sized((1_000, 10, 15), quick=(1_000, 5, 5), tiny=(10, 1, 1))
    with places(commits, count) as stores:
        compare("object_stores_commit", stores, lambda table: table.write(rows(count)), count, repeats)
        compare("object_stores_read", stores, lambda table: table.read().to_arrow(), count, repeats)


if __name__ == "__main__":
    main()
