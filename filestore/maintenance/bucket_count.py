"""Keeps the option ``bucket`` equal to the bucket count of the live files, beside rescaling and rollback."""

from dataclasses import replace

from filestore.scan.live_files import LiveFiles
from filestore.schema.table_schema import TableSchema
from filestore.table_store import TableStore
from lsm.errors import ConflictError


def set_bucket_count(store: TableStore, bucket_count: int) -> TableSchema:
    """Publish a schema version with this count, unless the newest one has it.

    Raises: ConflictError when the schema is changed concurrently; run it again.
    """
    newest = store.schemas.latest()
    assert newest is not None
    if newest.table_options.bucket == bucket_count:
        return newest
    options = {**newest.options, "bucket": str(bucket_count)}
    schema = replace(newest, id=newest.id + 1, options=options, time_ms=store.clock.now_ms())
    try:
        store.schemas.create(schema, after=newest)
    except ConflictError as error:
        raise ConflictError(
            f"the schema was changed concurrently, so the table does not have its new bucket count yet: "
            f"table={store.name} bucket={bucket_count} fix=run it again, nothing is written twice reason={error}"
        ) from error
    return schema


def align_bucket_count(store: TableStore) -> bool:
    """Let the option follow the live files, when all partitions have one fixed count and it is another one.

    A rescaling changes the files before the option, and a rollback the files alone: so both look once more behind
    their last step.

    Returns: whether the option was changed.
    """
    newest = store.schemas.latest()
    counts = {*LiveFiles.latest(store).partition_total_buckets().values()}
    if newest is None or newest.table_options.bucket < 1 or len(counts) != 1 or min(counts) < 1:
        return False
    (count,) = counts
    if count == newest.table_options.bucket:
        return False
    set_bucket_count(store, count)
    return True
