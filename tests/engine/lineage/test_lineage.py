"""What is done with records of lineage, whether the store answers or not."""

import pickle
from datetime import datetime
from pathlib import Path

from engine.catalog import Catalog
from engine.lineage.entities import DataLineage, JobStartup, LineageRecords, TableLineage
from engine.lineage.lineage import lineage_of

TIME = datetime(2023, 6, 5, 13, 29, 1)


def test_what_one_process_stores_another_reads(tmp_path: Path) -> None:
    """LN-44, LN-54 to LN-61: every write is visible at once, through whichever connection."""
    catalog = Catalog(str(tmp_path))
    catalog.create_database("db")
    lineage = lineage_of(catalog)
    assert lineage is not None
    records = LineageRecords(
        source_tables=(TableLineage("job1", "db", "word_table", TIME),),
        sink_tables=(TableLineage("job1", "db", "word_count_table", TIME),),
        source_snapshots=(DataLineage("job1", 1, "db", "word_table", 3, TIME),),
        sink_snapshots=(DataLineage("job1", 1, "db", "word_count_table", 5, TIME),),
        startups=(JobStartup("job1", "db", "word_table", 3),),
    )
    lineage.store(records)
    meta = pickle.loads(pickle.dumps(lineage)).meta
    assert tuple(meta.source_table_lineages()) == records.source_tables
    assert tuple(meta.sink_table_lineages()) == records.sink_tables
    assert tuple(meta.source_data_lineages()) == records.source_snapshots
    assert tuple(meta.sink_data_lineages()) == records.sink_snapshots
    assert tuple(meta.job_startups()) == records.startups
