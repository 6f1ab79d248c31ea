"""Records that a table cannot take: exactly they are left out, or go to the dead letters; nothing else is lost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from engine.cdc.rules.names import NameRule, Naming
from engine.cdc.samples import samples
from engine.cdc.state import CdcTableState
from engine.cdc.status import check_known, skipped
from engine.kafka.dead_letters import OFFSET_HEADER, DeadLetters
from lsm.errors import InvalidInputError
from tests.support.cdc_job import MemoryJob, memory_job
from tests.support.change_events import Record, SourceTable, int32

T = SourceTable("t", [int32("id", optional=False), int32("n")])
GARBAGE = (b"", b"\x00\xff", b"{", b"not JSON", b'"text"', b"17", b"[]")


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    with memory_job(tmp_path) as made:
        yield made


def order_row(number: int) -> Record:
    return T.insert({"id": number, "n": number})


def ids_stored(job: MemoryJob, table: str = "t") -> list[int]:
    return sorted(each["id"] for each in job.rows(table))


def skip(job: MemoryJob, until: int, table: str = "t") -> str | None:
    """As the command does. Gives why the table waits then."""
    skipped(table, check_known(job.state, table, parked=True), until)
    job.state.ask("skip", table, at_ms=until, until=until)
    job.restarted()
    return job.batch().tables[table].parked


POISONED = T.insert({"id": 99, "n": {"no": "number"}})
UNREADABLE: list[Record] = [(T.topic, b"k", each) for each in GARBAGE] + [POISONED]


@pytest.mark.parametrize("bad", UNREADABLE)
def test_a_skip_leaves_out_exactly_the_record_that_is_named(job: MemoryJob, bad: Record) -> None:
    """Good ones before and behind it, in its batch and in later ones, are written; the fix says how."""
    reason = str(job.batch(order_row(0), bad, order_row(2)).tables["t"].parked)
    assert "offset=1 " in reason
    assert reason.endswith("or: fluvial cdc skip t --until 2'")
    job.batch(order_row(4))
    with pytest.raises(InvalidInputError, match=r"at=shop\.public\.t/0 offset=1 until=1 fix='--until 2'"):
        skip(job, 1)
    assert skip(job, 2) is None
    assert ids_stored(job) == [0, 2, 4]
    job.batch(order_row(6))
    assert ids_stored(job) == [0, 2, 4, 6]


def test_several_records_are_skipped_one_after_the_other(job: MemoryJob) -> None:
    """Each skip is remembered until the table has gone on, also by another run of the job, and with resume."""
    bad = (T.topic, b"k", b"garbage")
    job.batch(order_row(0), bad, order_row(2), POISONED, order_row(4), bad, order_row(6))
    assert "offset=5 " in str(skip(job, 2))  # what is no JSON comes first
    job.state.ask("resume", "t", at_ms=1)
    assert "offset=5 " in str(job.batch().tables["t"].parked)
    assert "offset=3 " in str(skip(job, 6))
    assert skip(job, 4) is None
    assert ids_stored(job) == [0, 2, 4, 6]


def test_a_skip_in_one_topic_leaves_the_others_alone(tmp_path: Path) -> None:
    """Shards: the offset is one of the topic in which the record is."""
    naming = Naming(rules=(NameRule(source=r"public\.t_(\d)", to="t", add={"shard": "{1}"}, key=("shard", "id")),))
    one, two = (replace(T, name=f"t_{number}") for number in (1, 2))

    def good(source: SourceTable, number: int) -> Record:
        return source.insert({"id": number, "n": number})

    with memory_job(tmp_path, naming=naming) as job:
        job.batch(*(good(one, number) for number in range(5)), (two.topic, b"k", b"garbage"), good(two, 7))
        assert skip(job, 1) is None
        assert [(each["shard"], each["id"]) for each in job.rows("t")] == [
            *(("1", number) for number in range(5)), ("2", 7),
        ]  # fmt: skip


def test_a_truncate_of_a_shard_is_skipped_with_what_it_removed(tmp_path: Path) -> None:
    naming = Naming(rules=(NameRule(source=r"public\.t_(\d)", to="t", add={"shard": "{1}"}, key=("shard", "id")),))
    one, two = (replace(T, name=f"t_{number}") for number in (1, 2))
    with memory_job(tmp_path, naming=naming) as job:
        job.batch(one.insert({"id": 1, "n": 1}))
        parked = job.batch(
            one.insert({"id": 2, "n": 1}),
            two.insert({"id": 1, "n": 1}), two.truncate(), two.insert({"id": 3, "n": 1}),
        ).tables["t"].parked  # fmt: skip
        until = int(str(parked).partition("fluvial cdc skip t --until ")[2].split("'")[0])
        assert skip(job, until) is None
        assert [(each["shard"], each["id"]) for each in job.rows("t")] == [("1", 1), ("1", 2), ("2", 3)]


def test_a_table_that_an_earlier_version_parked_is_skipped_as_then(job: MemoryJob) -> None:
    """Its state does not say which record it is: all before the offset are left out."""
    job.batch(order_row(0), POISONED, order_row(2))
    body = job.state.table("t").to_json()
    for name in ("at", "left_out"):
        del body["parked"][name]
    job.state.put("t", CdcTableState.from_json(body))
    assert skip(job, 2) is None
    assert ids_stored(job) == [2]


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> dict[int, bytes | None]:
    """The dead letters by the offset of the record; the cluster in memory has transactional producers only."""
    found: dict[int, bytes | None] = {}

    def produce(_: DeadLetters, key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes]]) -> None:
        found[int(dict(headers)[OFFSET_HEADER])] = value

    monkeypatch.setattr(DeadLetters, "produce", produce)
    return found


@pytest.mark.parametrize("bad", UNREADABLE)
def test_what_cannot_be_read_goes_to_the_dead_letters(
    tmp_path: Path, letters: dict[int, bytes | None], bad: Record
) -> None:
    """Also what is no JSON at all, in a batch with good ones and alone; the table goes on."""
    with memory_job(tmp_path, dead_letters="letters", max_bad=2) as job:
        report = job.batch(order_row(0), bad, order_row(2)).tables["t"]
        assert (report.parked, report.bad, ids_stored(job)) == (None, 1, [0, 2])
        assert letters == {1: bad[2]}
        job.batch(bad)
        assert sorted(letters) == [1, 4]
        reason = str(job.batch(order_row(6), bad).tables["t"].parked)
        assert "too many records" in reason
        assert ids_stored(job) == [0, 2]
        assert reason.endswith("or: fluvial cdc skip t --until 8'")
        assert skip(job, 8) is None
        assert ids_stored(job) == [0, 2, 6]


def test_a_table_with_more_bad_records_than_are_allowed_continues_when_more_are(
    tmp_path: Path, letters: dict[int, bytes | None]
) -> None:
    with memory_job(tmp_path, dead_letters="letters", max_bad=1) as job:
        reason = str(job.batch(order_row(0), POISONED, order_row(2), POISONED).tables["t"].parked)
        assert "raise max-bad, start the job again, and: fluvial cdc resume t" in reason
        job.settings = replace(job.settings, max_bad=2)
        job.restarted()
        job.state.ask("resume", "t", at_ms=1)
        assert job.batch().tables["t"].parked is None
        assert (ids_stored(job), sorted(letters)) == ([0, 2], [1, 3])


@pytest.mark.parametrize("bad", [(T.topic, b"k", b"garbage"), POISONED])
def test_dead_letters_are_no_source_where_the_pattern_matches_their_topic(
    tmp_path: Path, letters: dict[int, bytes | None], bad: Record
) -> None:
    """Each was read again, and sent again, until the table had too many of them; plan named them as a problem."""
    with memory_job(tmp_path, dead_letters="shop.letters") as job:
        job.batch(order_row(0), bad)
        for _ in range(3):
            job.batch(("shop.letters", bad[1], bad[2]), order_row(3))
            job.restarted()
        assert (job.state.tables(), sorted(letters), ids_stored(job)) == (["t"], [1], [0, 3])
        assert [each.topic for each in samples(job.settings, count=9)] == [T.topic]


def test_garbage_before_the_first_row_of_a_table_is_a_dead_letter_too(
    tmp_path: Path, letters: dict[int, bytes | None]
) -> None:
    with memory_job(tmp_path, dead_letters="letters") as job:
        job.batch((T.topic, b"k", b"garbage"))
        assert letters == {0: b"garbage"}
        job.batch(order_row(1))
        assert ids_stored(job) == [1]


def test_a_lost_checkpoint_does_not_meet_records_that_were_skipped(job: MemoryJob) -> None:
    job.batch(order_row(0), (T.topic, b"k", b"garbage"), order_row(2))
    skip(job, 2)
    job.position, job.batch_id, job.commit_user = {}, -1, "query-2"
    job.restarted()
    assert job.batch(order_row(5)).tables["t"].parked is None
    assert ids_stored(job) == [0, 2, 5]


def test_records_of_which_every_one_is_wrong_are_no_dead_letters(tmp_path: Path) -> None:
    """Without schema parts all of them would go there: the table waits, with what to set."""
    with memory_job(tmp_path, dead_letters="letters") as job:
        value = b'{"before":null,"after":{"id":1},"op":"c","source":{"schema":"public","table":"t"}}'
        assert "schemas.enable=true" in str(job.batch((T.topic, None, value)).tables["t"].parked)
