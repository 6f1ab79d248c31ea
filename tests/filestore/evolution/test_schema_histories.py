"""Any history of schema changes and writes, read at every version of the schema, against rows by field id."""

import random
from pathlib import Path

import pytest

from filestore.catalog.catalog import FileCatalog
from tests.support.schema_histories import SchemaHistory

HISTORIES = 12


@pytest.mark.sampled(2)
@pytest.mark.sweep
@pytest.mark.parametrize("file_format", ["parquet", "orc", "avro"])
@pytest.mark.parametrize("compacts", [False, True])
def test_every_version_shows_every_row_by_field_id(tmp_path: Path, file_format: str, compacts: bool) -> None:
    """FL-121: nested fields too. Older versions show newer files, whose values fit their types, until a compaction
    leaves dropped columns out."""
    for seed in range(HISTORIES if file_format == "parquet" else HISTORIES // 3):
        catalog = FileCatalog(str(tmp_path))
        history = SchemaHistory(
            catalog=catalog, name=f"db.t{seed}", random=random.Random(f"{seed} {compacts}"), compacts=compacts
        )
        history.begin(**{"file.format": file_format})
        history.run(steps=12)
        table = catalog.table(history.name)
        versions = table.store.schemas.ids()
        for schema_id in versions[-1:] if compacts else versions:
            there = table.at_version(schema_id)
            rows = sorted(there.read().to_arrow().to_pylist(), key=lambda row: row["id"])
            assert rows == history.expected(there.schema), f"seed={seed} version={schema_id}"
