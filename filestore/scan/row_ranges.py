"""Files that hold different columns of the same rows, in tables with ``data-evolution.enabled``.

Rows have consecutive ids in each file, so files with the same ids hold the same rows in the same order. Of a column
that several have, the newest file has the values. Source: Paimon's DataEvolutionSplitRead.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from filestore.manifest.entries import DataFileMeta
from lsm.errors import CorruptDataError

RowFiles = tuple[DataFileMeta, ...]


def files_by_rows(files: Iterable[DataFileMeta]) -> Sequence[RowFiles]:
    """The files of each range of ids, the newest first; ranges are in the order of ids.

    Raises: CorruptDataError: a file has no ids, or files have only some ids in common.
    """
    found: defaultdict[tuple[int, int], list[DataFileMeta]] = defaultdict(list)
    for file in files:
        if file.first_row_id is None:
            raise CorruptDataError(f"rows of a data file have no ids: file={file.file_name} _FIRST_ROW_ID=null")
        found[file.first_row_id, file.row_count].append(file)
    end, before = 0, ""
    for (first, count), parts in sorted(found.items()):
        if first < end:
            raise CorruptDataError(
                f"files have some rows in common, and others not: first_row_id={first} rows={count} "
                f"file={parts[0].file_name} other={before}"
            )
        end, before = first + count, parts[0].file_name
    return [
        tuple(sorted(parts, key=lambda file: (-file.max_sequence_number, file.file_name)))
        for _, parts in sorted(found.items())
    ]
