"""Names by which a file proves of which batch it is."""

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from engine.simulation.seams import ActorNames
from engine.spark.writer.task_attempt import AttemptNames
from filestore.io.file_io import NameSource, RandomNames
from filestore.write.batch_names import BatchNames, is_of_batch

SOURCES: list[Callable[[], NameSource]] = [
    RandomNames,
    lambda: ActorNames(actor=3),
    lambda: AttemptNames(RandomNames().uuid()[:24]),
]
QUERIES = st.text(max_size=20)
BATCHES = st.integers(min_value=0, max_value=2**63 - 1)
PATTERNS = st.sampled_from(["data-{}-0.parquet", "changelog-{}-12.avro", "index-{}-0", "data--u-q-s-1-w-{}-0.orc"])


@given(source=st.sampled_from(SOURCES), query=QUERIES, batch=BATCHES, pattern=PATTERNS)
def test_a_name_is_of_its_batch_and_of_no_other(
    source: Callable[[], NameSource], query: str, batch: int, pattern: str
) -> None:
    name = pattern.format(BatchNames(names=source(), query=query, batch=batch).uuid())
    assert is_of_batch(name, query=query, batch=batch)
    for other in ({"batch": batch + 1}, {"query": f"{query}x"}, {"query": f"{batch}\n{query}", "batch": 0}):
        assert not is_of_batch(name, **{"query": query, "batch": batch, **other})


@given(source=st.sampled_from(SOURCES), query=QUERIES, batch=BATCHES)
def test_names_stay_unique_and_keep_their_shape(source: Callable[[], NameSource], query: str, batch: int) -> None:
    names = BatchNames(names=source(), query=query, batch=batch)
    made = [names.uuid() for _ in range(100)]
    assert len({*made}) == 100
    assert {tuple(map(len, each.split("-"))) for each in made} == {(8, 4, 4, 4, 12)}


@dataclass
class OneName:
    name: str
    asked: int = field(default=0)

    def uuid(self) -> str:
        return self.name


def test_the_digits_are_those_of_the_format() -> None:
    """FORMAT.md: other programs may check them, and a later version must."""
    names = BatchNames(names=OneName("00000001-0002-4003-8004-000500060007"), query="q", batch=7)
    assert names.uuid() == "00000001-0002-5ae2-f93a-195b00060007"
