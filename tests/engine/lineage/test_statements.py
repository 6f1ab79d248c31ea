"""Lineage that is stated by hand for jobs outside Fluvial, and jobs that are said to write and never did."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog, procedures
from engine.cli.app import run_command
from engine.lineage.datasets import catalog_uri
from engine.lineage.lineage import Lineage, lineage_of
from engine.lineage.store.entities import LineageRecords, TableLineage, time_of
from engine.lineage.truth.checked import checked_meta
from lsm.errors import InvalidInputError

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture
def catalog(tmp_path: Path) -> Catalog:
    """Two tables that Fluvial writes, each with three snapshots, and one that another engine writes."""
    catalog = Catalog(str(tmp_path / "lake"))
    for name in ("raw", "orders", "daily"):
        table = catalog.create_table(f"shop.{name}", SCHEMA, primary_key=["id"], options={"bucket": "1"})
        for key in range(3):
            table.write(pa.table({"id": [key]}), options={"pipeline.name": "load"})
    return catalog


def store(catalog: Catalog) -> Lineage:
    lineage = lineage_of(catalog)
    assert lineage is not None
    return lineage


def stated(catalog: Catalog) -> set[tuple[str, str, str]]:
    """Job, role and table of everything that is shown as stated."""
    rows = catalog.system_table("paimon.stated_lineage").to_arrow().to_pylist()
    return {(row["job"], row["role"], f"{row['database']}.{row['table']}") for row in rows}


def snapshots(catalog: Catalog, job: str) -> set[tuple[str, str, int]]:
    """Role, table and snapshot of a job's rows, after a check."""
    with checked_meta(store(catalog), catalog) as meta:
        sides = (("read", meta.source_data_lineages()), ("written", meta.sink_data_lineages()))
        return {(role, each.table, each.snapshot_id) for role, rows in sides for each in rows if each.job == job}


BOTH = {("report", "read", "shop.orders"), ("report", "written", "shop.daily")}


def write_more(catalog: Catalog) -> None:
    for name in ("raw", "orders", "daily"):
        catalog.table(f"shop.{name}").write(pa.table({"id": [9]}))


def rename(catalog: Catalog) -> None:
    catalog.rename_table("shop.orders", "shop.sales")


def swap(catalog: Catalog) -> None:
    for old, new in (("orders", "x"), ("daily", "orders"), ("x", "daily")):
        catalog.rename_table(f"shop.{old}", f"shop.{new}")


def roll_back(snapshot: int) -> Callable[[Catalog], None]:
    return lambda catalog: procedures.rollback(catalog.table("shop.daily"), snapshot=snapshot, force=True) and None


def repair_all(catalog: Catalog) -> None:
    assert procedures.repair_lineage.for_all is not None
    procedures.repair_lineage.for_all(catalog)


def without_old_snapshots(catalog: Catalog) -> None:
    write_more(catalog)
    for name in ("orders", "daily"):
        procedures.expire_snapshots(
            catalog.table(f"shop.{name}"), retain_max=1, retain_min=1, older_than="2100-01-01 00:00:00"
        )


@pytest.mark.parametrize(
    ("change", "tables", "rows"),
    [
        (write_more, BOTH, {("read", "orders", 2), ("written", "daily", 2)}),
        (repair_all, BOTH, {("read", "orders", 2), ("written", "daily", 2)}),
        (without_old_snapshots, BOTH, {("read", "orders", 2), ("written", "daily", 2)}),
        (roll_back(2), BOTH, {("read", "orders", 2), ("written", "daily", 2)}),
        (roll_back(1), BOTH, set()),
        (
            rename,
            {("report", "read", "shop.sales"), ("report", "written", "shop.daily")},
            {("read", "sales", 2), ("written", "daily", 2)},
        ),
        (
            swap,
            {("report", "read", "shop.daily"), ("report", "written", "shop.orders")},
            {("read", "daily", 2), ("written", "orders", 2)},
        ),
    ],
)
def test_what_is_stated_stays_through_every_correction(
    catalog: Catalog, change: Callable[[Catalog], None], tables: set[Any], rows: set[Any]
) -> None:
    """LN-15, LN-19: it loses the snapshots that a table has not got any more, and nothing else."""
    arguments = {"job": "report", "reads": "shop.orders@2", "writes": "shop.daily@2"}
    assert procedures.state_lineage(catalog, **arguments).to_pylist() == [
        {"job": "report", "table": "shop.orders", "role": "read", "snapshot_id": 2},
        {"job": "report", "table": "shop.daily", "role": "written", "snapshot_id": 2},
    ]
    procedures.state_lineage(catalog, **arguments)  # again: nothing changes
    assert (stated(catalog), snapshots(catalog, "report")) == (BOTH, {("read", "orders", 2), ("written", "daily", 2)})
    for _ in range(2):
        change(catalog)
        assert (stated(catalog), snapshots(catalog, "report")) == (tables, rows)
        change = repair_all
    procedures.delete_table_lineage(catalog, "report")
    procedures.delete_data_lineage(catalog, "report")
    assert (stated(catalog), snapshots(catalog, "report")) == (set(), set())


def test_a_statement_adds_to_what_the_snapshot_says(catalog: Catalog) -> None:
    """The job that wrote the snapshot says what it has read; its own rows stay, also when the statement goes."""
    before = snapshots(catalog, "load")
    procedures.state_lineage(catalog, job="load", reads="shop.raw, postgres://u:pw@db.local:5432/crm.users",
                             writes="shop.orders")  # fmt: skip
    assert snapshots(catalog, "load") - before == {("read", "raw", 3)}
    found = catalog.system_table("paimon.upstream_tables").to_arrow(filter="`table` = 'orders'").to_pylist()
    upstream = {f"{row['upstream_database']}.{row['upstream_table']}" for row in found}
    assert "shop.raw" in upstream
    assert any("crm.users" in each for each in upstream)
    assert not any("pw" in each for each in upstream)


def test_lineage_shows_what_is_stated_by_hand(catalog: Catalog, capsys: pytest.CaptureFixture[str]) -> None:
    """LN-26: in text, as JSON and as a picture; a job that has recorded itself is not marked."""
    place = ["--warehouse", catalog.warehouse]
    words = ["--job", "export", "--reads", "shop.daily", "--writes", "s3://out/daily.csv"]
    assert run_command(["state-lineage", *words, *place]) == 0
    capsys.readouterr()
    assert run_command(["lineage", "shop.daily", *place]) == 0
    shown = capsys.readouterr().out
    assert "job export  stated by hand" in shown
    assert "job load  batch" in shown
    assert run_command(["lineage", *place, "--json"]) == 0
    edges = {(each["from"], each["to"]): each for each in json.loads(capsys.readouterr().out)["edges"]}
    assert edges["shop.daily", "export"]["stated_by_hand"]
    assert "stated_by_hand" not in edges["load", "shop.daily"]
    picture = Path(catalog.warehouse).parent / "g.svg"
    assert run_command(["lineage", *place, "--svg", str(picture)]) == 0
    assert "stated by hand: 1 job" in picture.read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"job": "j"}, "reads and writes nothing"),
        ({}, "either a job or events"),
        ({"job": "j", "events": "{}"}, "either a job or events"),
        ({"job": "j", "reads": "shop.rawe"}, "no such table"),
        ({"job": "j", "reads": "raw"}, "not a table"),
        ({"job": "j", "reads": "shop.raw@x"}, "not a table"),
        ({"job": "j", "reads": "shop.raw@9"}, "no such snapshot"),
        ({"job": "", "reads": "shop.raw"}, "name is too long or invalid"),
        ({"events": "{"}, "no JSON"),
        ({"events": "{}"}, "not a run event"),
        ({"events": "[1]"}, "not a run event"),
    ],
)
def test_a_statement_about_nothing_is_refused(catalog: Catalog, arguments: dict[str, str], words: str) -> None:
    """Nothing is stored of it."""
    with pytest.raises(InvalidInputError, match=words):
        procedures.state_lineage(catalog, **arguments)
    assert stated(catalog) == set()


def event(kind: str, run: str, *, stream: bool = False, **datasets: list[dict[str, Any]]) -> dict[str, Any]:
    facets = {"jobType": {"processingType": "STREAMING" if stream else "BATCH"}}
    return {
        "eventType": kind,
        "eventTime": "2026-11-21T12:00:00.5Z",
        "run": {"runId": run},
        "job": {"namespace": "airflow", "name": f"job {run}", "facets": facets},
    } | datasets


def test_openlineage_events_are_statements(catalog: Catalog) -> None:
    """LN-31: inputs of any event of a run that completed; tables by directory or name, others by address."""
    orders = {
        "namespace": "file",
        "name": f"{catalog.warehouse}/shop.db/orders",
        "facets": {"version": {"datasetVersion": "2"}},
    }
    symlink = {"identifiers": [{"namespace": catalog_uri(catalog.warehouse), "name": "shop.daily", "type": "TABLE"}]}
    daily = {"namespace": "dbfs", "name": "/elsewhere", "facets": {"symlinks": symlink}}
    users = {"namespace": "postgres://db:5432", "name": "crm.users"}
    events = [
        event("START", "a", inputs=[orders, users]),
        event("COMPLETE", "a", outputs=[daily]),
        event("START", "b", inputs=[orders], outputs=[daily]),  # has not ended
        event("COMPLETE", "c", outputs=[daily]) | {"eventType": "FAIL"},
        event("RUNNING", "d", stream=True, inputs=[orders], outputs=[daily]),
    ]
    for text in (json.dumps(events), "\n".join(map(json.dumps, events))):
        procedures.state_lineage(catalog, events=text)
        assert stated(catalog) == {
            ("job a", "read", "shop.orders"),
            ("job a", "read", "postgres://db:5432/crm.users"),
            ("job a", "written", "shop.daily"),
            ("job d", "read", "shop.orders"),
            ("job d", "written", "shop.daily"),
        }
        assert snapshots(catalog, "job a") == {("read", "orders", 2), ("written", "daily", 3)}


def test_a_repair_drops_jobs_that_never_committed(catalog: Catalog) -> None:
    """LN-15: rows of earlier versions, which stored them before the first batch."""
    now = time_of(store(catalog).now_ms())
    store(catalog).store(
        LineageRecords(
            source_tables=(TableLineage("failed", "shop", "raw", now),),
            sink_tables=(TableLineage("failed", "shop", "daily", now),),
        )
    )
    (row,) = procedures.repair_lineage(catalog.table("shop.daily")).to_pylist()
    assert row == {"table": "shop.daily", "recorded": 0, "dropped": 1}
    found = catalog.system_table("paimon.sink_job_lineage").to_arrow(filter="`table` = 'daily'").to_pylist()
    assert [each["job"] for each in found] == ["load"]
