"""A shop with two jobs in a row, for tests of recoveries."""

import re
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from engine import Catalog, Table
from engine.deploy.recovery.plan_file import PlanFile, RecoveryState

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
TABLES = ("shop.raw", "shop.orders", "shop.daily")
PAGE = Path(__file__).resolve().parents[4] / "docs/recovery.md"


def block_of_page(language: str) -> str:
    """The one block of the page in a language."""
    [found] = re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return str(found)


class Died(BaseException):
    """A process that ended here."""


class DyingFile(PlanFile):
    """A plan file whose process dies once for each step of some kinds: when it is done, before that is written."""

    def __init__(self, file: PlanFile, at: set[tuple[str, int]], died: set[tuple[str, int]]) -> None:
        super().__init__(file.path, file.plan, file.state)
        self._at, self._died = at, died

    def save(self, state: RecoveryState) -> None:
        for index in state.facts.keys() - self.state.facts.keys():
            self.die("unwritten", index)
        super().save(state)

    def die(self, when: str, index: int) -> None:
        if (when, index) in self._at - self._died:
            self._died.add((when, index))
            raise Died(f"{when} {self.plan.steps[index].command}")


def make_shop(home: Path) -> tuple[Catalog, Path]:
    """The job file, and ``raw`` with two right snapshots and a wrong one."""
    path = home / "shop.yaml"
    text = block_of_page("yaml").replace("warehouse: ", f"warehouse: {home}/")
    path.write_text(text.replace("checkpoint: ", f"checkpoint: {home}/"))
    catalog = Catalog(str(home / "warehouse"))
    raw = catalog.create_table("shop.raw", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    for rows in ({1: 1}, {2: 2}, {2: -2, 3: -3}):
        load_rows(raw, rows)
    return catalog, path


def load_rows(table: Table, rows: Mapping[int, int], job: str = "load") -> None:
    frame = pa.table({"id": list(rows), "n": list(rows.values())}, schema=SCHEMA)
    table.write(frame, options={"pipeline.name": job})


def shown_rows(catalog: Catalog) -> list[dict[int, int]]:
    """What readers of the three tables see."""
    tables = (catalog.table(name).read().to_arrow().to_pylist() for name in TABLES)
    return [{row["id"]: row["n"] for row in rows} for rows in tables]
