"""Renaming where no directory can be moved: refused before anything changes, but by a catalog that has places."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from filestore.catalog.catalog import FileCatalog
from filestore.io.object_store import ObjectStorageIO, check_renaming
from lsm.errors import InvalidInputError
from tests.support.faults import MemoryFileIO
from tests.support.tables import KEY_SCHEMA, content, rows


@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
@pytest.mark.parametrize("metastore", ["filesystem", "jdbc"])
def test_a_table_in_an_object_store_is_not_renamed(scheme: str, metastore: str, tmp_path: Path) -> None:
    """Names in a database are those of Paimon, which looks for a table below its name: a new name would lose it."""
    names: Mapping[str, str] = {"metastore": "jdbc", "uri": f"sqlite:///{tmp_path}/names.db", "lock.enabled": "false"}
    io = MemoryFileIO()
    account = {"azure.account": "account"}
    options = {**account, **(names if metastore == "jdbc" else {})}
    catalog = FileCatalog(f"{scheme}://bucket/lake", options, io=io)
    table = catalog.create_table("db.t", KEY_SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(rows((1, 10)))
    before = dict(io.files)
    assert not catalog.can_rename_tables
    with pytest.raises(InvalidInputError, match=r"cannot be renamed: table=db\.t .*fix='CALL sys\.copy to the new"):
        catalog.rename_table("db.t", "db.u")
    assert dict(io.files) == before
    assert catalog.list_tables("db") == ["t"]
    assert content(catalog.table("db.t")) == {1: 10}


def test_a_lock_of_names_alone_is_not_enough_for_another_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 20 point 6: where places are kept beside names, old writers hold another lock than new ones."""
    io = FileCatalog("s3://bucket/lake", {"s3.endpoint": "http://127.0.0.1:1"})._io
    monkeypatch.setattr(ObjectStorageIO, "has_conditional_put", lambda self, path: True)
    check_renaming(io, "s3://bucket/lake/db.db/t")
    monkeypatch.setattr(ObjectStorageIO, "has_conditional_put", lambda self, path: False)
    with pytest.raises(InvalidInputError, match=r"ignores If-None-Match, so writers .*fix='CALL sys\.copy to the new"):
        check_renaming(io, "s3://bucket/lake/db.db/t")
