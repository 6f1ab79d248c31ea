"""Rows that are numbered again because another writer came first."""

import pytest

from engine.write.renumber import rewrite_with_higher_numbers
from lsm.errors import OutcomeUnknownError
from tests.support.tables import key_table, messages_of, rows


def test_files_that_are_gone_are_not_published_again() -> None:
    """A paused job: its batch was taken over from the log, compacted and expired."""
    table = key_table(bucket="1")
    (message,) = messages_of(table, rows((1, 1), (2, 2)))
    moved = rewrite_with_higher_numbers(table.store, message, above=9)
    assert [(file.min_sequence_number, file.max_sequence_number) for file in moved.new_files] == [(10, 11)]
    (file,) = message.new_files
    table.store.io.delete(table.store.file_path(message.partition, message.bucket, file))
    assert rewrite_with_higher_numbers(table.store, message, above=-1) == message
    with pytest.raises(OutcomeUnknownError, match=r"deleted before its commit: .*look whether its rows are there"):
        rewrite_with_higher_numbers(table.store, message, above=9)
