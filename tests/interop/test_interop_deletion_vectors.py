"""Deletion vectors of three writers in one table: marks of ours are Java's, and its are ours."""

import random
from pathlib import Path
from typing import Any

import pytest

from tests.peers import DELETE, INSERT, TableDefinition, normalise
from tests.peers.agreement import FLUVIAL
from tests.peers.java_peer import JavaPeer
from tests.peers.pypaimon_peer import PyPaimonPeer
from tests.peers.tables import rows_of

pytestmark = pytest.mark.interop

COLUMNS = [("pt", "STRING NOT NULL"), ("k", "INT NOT NULL"), ("v", "STRING"), ("n", "INT")]
KINDS: dict[str, dict[str, str]] = {
    "narrow": {},
    "wide-sums": {
        "deletion-vectors.bitmap64": "true",
        "merge-engine": "aggregation",
        "fields.n.aggregate-function": "sum",
    },
    "lookup": {"changelog-producer": "lookup"},
}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_java_and_we_go_on_with_each_others_vectors(
    tmp_path: Path, java_peer: JavaPeer, pypaimon_peer: PyPaimonPeer, kind: str
) -> None:
    """FL-24: each writes and compacts in turn; all read the rows of a dictionary, pypaimon those of 32 bits."""
    definition = TableDefinition(
        columns=COLUMNS,
        primary_key=["pt", "k"],
        partition_by=["pt"],
        options={
            "bucket": "2",
            "deletion-vectors.enabled": "true",
            "num-sorted-run.compaction-trigger": "6",
            "compaction.max-size-amplification-percent": "100000",
            **KINDS[kind],
        },
    )
    (java_peer if kind == "wide-sums" else FLUVIAL).create(tmp_path, "db.t", definition)
    choice = random.Random(kind)
    state: dict[Any, Any] = {}
    for turn in range(6):
        count = 300 if turn == 0 else 12
        keys = choice.sample([(pt, k) for pt in "ab" for k in range(200)], count)
        rows = [{"pt": pt, "k": k, "v": f"v{turn}", "n": turn + 1} for pt, k in keys]
        takes_deletes = kind != "wide-sums"
        kinds = [DELETE if takes_deletes and choice.random() < 0.2 else INSERT for _ in rows]
        writer = FLUVIAL if turn % 2 == 0 else java_peer
        writer.write(tmp_path, "db.t", rows_of(definition, rows), kinds=kinds)
        for row, each in zip(rows, kinds, strict=True):
            key, known = (row["pt"], row["k"]), state.get((row["pt"], row["k"]))
            if each == DELETE:
                state.pop(key, None)
            elif kind == "wide-sums" and known is not None:
                state[key] = {**row, "n": known["n"] + row["n"]}
            else:
                state[key] = row
        wanted = normalise(rows_of(definition, state.values()))
        assert normalise(FLUVIAL.table(tmp_path, "db.t").read().to_arrow()) == wanted, turn
        assert java_peer.read(tmp_path, "db.t") == wanted, turn
        if kind != "wide-sums" and turn % 2:
            assert pypaimon_peer.read(tmp_path, "db.t") == wanted, turn
        if turn == 3:
            java_peer.compact(tmp_path, "db.t")
    table = FLUVIAL.table(tmp_path, "db.t")
    latest = table.store.snapshots.latest()
    assert latest is not None
    assert latest.index_manifest is not None
    table.compact(full=True)
    assert java_peer.read(tmp_path, "db.t") == wanted
