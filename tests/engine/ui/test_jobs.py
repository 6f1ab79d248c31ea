"""The pages of jobs: what they show of pipelines and databases, and who may resume a parked table by them."""

import json
import socket
from collections.abc import Iterator
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest

from engine.cdc.state import CdcTableState, Parked
from engine.deploy.cdc_job import RunningDatabase
from engine.deploy.config.operation_config import HealthConfig
from engine.deploy.pipeline.health import health_of, published_health
from engine.kafka.dead_letters import OFFSET_HEADER, PARTITION_HEADER, REASON_HEADER, TOPIC_HEADER
from engine.runtime.step_file import TimedStep
from engine.runtime.steps import Step
from logstore.kafka.clients import ErrorNotes
from logstore.kafka.topics import LogTopics
from tests.support.cdc_job import SERVERS, MemoryJob, memory_job
from tests.support.change_events import SourceTable, int32
from tests.support.consoles import Client, cells, running

SCRIPT: Final = "<script>alert(1)</script>"
NUMBERS: Final = SourceTable("numbers", [int32("id"), int32("n")])
JOB: Final = """
name: night
warehouse: {place}/warehouse
health: {{file: {place}/health.json}}
tables:
  web.visits: {{columns: {{visit: BIGINT}}, options: {{log.system: none}}}}
pipelines:
- name: visits
  source: {{format: json, options: {{path: "{place}/events"}}}}
  target: web.visits
  checkpoint: {place}/checkpoints/visits
  options: {{trace.directory: "{place}/trace"}}
cdc:
- name: shop
  database: shop
  dead-letters: letters
  source: {{options: {{subscribePattern: 'shop[.].*', kafka.bootstrap.servers: "{servers}"}}}}
"""
PLACE: Final = {"file": "0", "name": "shop", "table": "numbers"}
PAGE: Final = f"/parked?{urlencode(PLACE)}"
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}


@pytest.fixture
def job(tmp_path: Path) -> Iterator[MemoryJob]:
    """A job that has parked the table ``numbers`` at offset 2."""
    with memory_job(tmp_path) as made:
        made.batch(NUMBERS.insert({"id": 1, "n": 1}))
        made.batch(NUMBERS.insert({"id": 2, "n": "two"}), NUMBERS.insert({"id": 3, "n": 3}))
        (tmp_path / "job.yaml").write_text(JOB.format(place=tmp_path, servers=SERVERS))
        yield made


def answer_of(client: Client, *, headers: dict[str, str] | None = None, **form: str) -> tuple[int, str]:
    """Send the form of the page, and return the status and where it leads, or what was said."""
    own = {"Origin": f"http://127.0.0.1:{client.port}", "Host": f"127.0.0.1:{client.port}"}
    given = {**client.admitted, **FORM, **own} if headers is None else headers
    answer = client.ask("/act", method="POST", headers=given, body=urlencode({**PLACE, **form}))
    return answer.status, answer.headers.get("location", answer.text)


def test_a_parked_table_is_resumed_or_skipped_as_by_the_commands(job: MemoryJob, tmp_path: Path) -> None:
    """A story: the page shows why it waits and where; a skip is asked, and the next batch of the job answers."""
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),), allows_actions=True) as client:
        assert PAGE in client.ask("/jobs").links()
        page = client.ask(PAGE).text
        assert escape("topic=shop.public.numbers partition=0 offset=2") in page
        assert [row[:3] for row in cells(page)] == [["shop.public.numbers/0", "2", "2"]]
        assert page.count('<form method="post" action="/act">') == 2
        assert 'name="until" value="3"' in page, "the record alone"
        assert answer_of(client, do="resume") == (303, PAGE)
        [request] = job.state.requests()
        assert (request.action, request.table) == ("resume", "numbers")
        assert [row[0] for row in cells(client.ask(PAGE).text)] == ["resume"]
        assert answer_of(client, do="skip", until="3") == (303, PAGE)
        job.batch()
        assert [row["id"] for row in job.rows("numbers")] == [1, 3]
        assert "running" in client.ask(PAGE).text
        assert "<form" not in client.ask(PAGE).text
        assert answer_of(client, do="resume")[0] == 409, "it is not parked"


def test_a_skip_to_the_end_asks_the_brokers_for_it(job: MemoryJob, tmp_path: Path) -> None:
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),), allows_actions=True) as client:
        assert answer_of(client, do="skip", until="end") == (303, PAGE)
        [request] = job.state.requests()
        assert (request.action, request.until) == ("skip", 5)


def test_an_action_comes_from_a_page_of_the_console_alone(job: MemoryJob, tmp_path: Path) -> None:
    """With the token, by POST, from the same origin, in a small form; whatever else is sent asks for nothing."""
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),), allows_actions=True) as client:
        own = f"http://127.0.0.1:{client.port}"
        base = {**client.admitted, **FORM, "Host": f"127.0.0.1:{client.port}"}
        for status, headers in (
            (401, {**FORM, "Host": base["Host"], "Origin": own}),
            (403, base),
            (403, {**base, "Origin": "null"}),
            (403, {**base, "Origin": "http://evil.example"}),
            (403, {**base, "Origin": "http://127.0.0.1:1"}),
            (403, {**base, "Origin": own.replace("127.0.0.1", "localhost")}),
            (403, {**base, "Origin": own, "Sec-Fetch-Site": "same-site"}),
            (403, {**base, "Origin": own, "Sec-Fetch-Site": "cross-site"}),
            (403, {**base, "Origin": "http://evil.example", "Sec-Fetch-Site": "same-origin"}),
            (403, {**base, "Origin": own, "Host": "evil.example"}),
            (400, {**base, "Origin": own, "Content-Type": "text/plain"}),
            (400, {**base, "Origin": own, "Content-Type": "application/json"}),
        ):
            assert answer_of(client, headers=headers, do="resume")[0] == status, headers
        assert answer_of(client, do="resume", more="x" * 5000)[0] == 400
        for wrong in (
            {"do": "drop"},
            {"do": ""},
            {"do": "resume", "table": f"../{SCRIPT}"},
            {"do": "resume", "name": SCRIPT},
            {"do": "resume", "file": "1"},
            {"do": "resume", "file": "-1"},
            {"do": "skip", "until": "soon"},
            {"do": "skip", "until": "2"},
            {"do": "skip", "until": ""},
        ):
            status, said = answer_of(client, **wrong)
            assert (status, SCRIPT in said) == (409, False), (wrong, said)
        for path, method in (("/act", "GET"), ("/act?do=resume", "GET"), (PAGE, "POST"), ("/act", "PUT")):
            assert client.ask(path, method=method, headers={**base, "Origin": own}).status in (404, 405)
        assert job.state.requests() == []
        for headers in ({"Sec-Fetch-Site": "same-origin"}, {"Sec-Fetch-Site": "same-origin", "Origin": "null"}):
            assert answer_of(client, headers={**base, **headers}, do="resume") == (303, PAGE), "what browsers send"
        assert len(job.state.requests()) == 2


def test_without_the_option_no_page_changes_anything(job: MemoryJob, tmp_path: Path) -> None:
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),)) as client:
        page = client.ask(PAGE)
        assert (page.status, "<form" in page.text, "--allow-actions" in page.text) == (200, False, True)
        assert answer_of(client, do="resume")[0] == 405
        assert job.state.requests() == []


def test_hostile_names_of_tables_topics_and_reasons_are_text(job: MemoryJob, tmp_path: Path) -> None:
    name = f'a/b "{SCRIPT}&'
    offsets = {(SCRIPT, 0): 7}
    job.state.put(name, CdcTableState(parked=Parked(since_ms=1, reason=SCRIPT, batch_id=3, offsets=offsets)))
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),), allows_actions=True) as client:
        jobs = client.ask("/jobs")
        [address] = [each for each in jobs.links("/parked") if "numbers" not in each]
        page = client.ask(address)
        for text in (jobs.text, page.text):
            assert SCRIPT not in text
            assert escape(SCRIPT) in text
        assert f'name="table" value="{escape(name)}"'.replace("&quot;", "&#34;") in page.text
        assert answer_of(client, table=name, do="resume")[0] == 303
        assert [each.table for each in job.state.requests()] == [name]


STEPS: Final = (
    ("batch-given", 0),
    ("batch-started", 1),
    ("rows-collected", 11),
    ("tasks-done", 30),
    ("table-committed", 38),
    ("batch-done", 41),
)


def test_a_pipeline_has_its_batches_as_bars_its_restarts_and_its_state(job: MemoryJob, tmp_path: Path) -> None:
    """By its trace and by what the running job publishes; files that are broken or away say so."""
    assert {name for name, _ in STEPS} <= {each.value for each in Step}
    place = "/job?file=0&name=visits"
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),)) as client:
        assert "fix=&#39;run with trace.directory=" in client.ask(place).text.replace("fix=run", "fix=&#39;run")
    first = TimedStep(table="web.visits", batch=0, step="", at_us=0, process="host/1", thread=1)
    lines = [
        replace(first, batch=batch, step=step, at_us=1_000_000 * batch + 1000 * ms, facts={"rows": 7}).to_json()
        for batch in range(30)
        for step, ms in STEPS
    ]
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "host-1.steps.jsonl").write_text("\n".join([*lines, '{"cut']))
    health = {"pipelines": {"visits": {"state": "waiting", "restart_count": 3}, "shop": {"state": SCRIPT}}}
    (tmp_path / "health.json").write_text(json.dumps(health))
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),)) as client:
        page = client.ask(place)
        assert [row[0] for row in cells(page.text)] == [str(each) for each in range(29, 9, -1)]
        assert cells(page.text)[0][1:4] == ["web.visits", "7", "41 ms"]
        assert page.text.count("<svg") == 21
        assert "web.visits, batch 29" in page.text
        assert "web.visits, batch 12" in client.ask(f"{place}&of=web.visits&batch=12").text
        jobs = client.ask("/jobs").text
        [row] = [each for each in jobs.split("<tr>") if ">visits<" in each]
        assert "waiting, has not finished a batch" in row
        assert '<span class="warn">3</span>' in row
        assert SCRIPT not in jobs
    (tmp_path / "health.json").write_text('{"pipelines": [1]}')
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),)) as client:
        assert "not the health of a job" in client.ask("/jobs").text


def test_what_a_running_job_publishes_is_found_in_its_file_or_at_its_port(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    places = {"file": str(tmp_path / "health.json"), "port": port}
    for given in ({"file": places["file"]}, {"port": port}, places):
        config = HealthConfig.model_validate(given)
        assert published_health(config) is None
        with health_of(config, "night", RunningDatabase("shop")):
            found = published_health(config)
            assert found is not None
            assert (found["job"], found["pipelines"]["shop"]["restart_count"]) == ("night", 0)
    assert published_health(HealthConfig()) is None


def test_dead_letters_are_shown_with_their_reasons_newest_first(job: MemoryJob, tmp_path: Path) -> None:
    topics = LogTopics(job.settings.properties)
    place = "/job?file=0&name=shop"
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),)) as client:
        assert 'class="soft">dead letters cannot be read' in client.ask(place).text, "no topic before the first"
    topics.create_topic("letters", bucket_count=2)
    producer = job.settings.properties.producer(ErrorNotes(), transactional_id="letters")  # others are not in memory
    producer.init_transactions()
    producer.begin_transaction()
    for number in range(50):
        headers = {TOPIC_HEADER: "shop.t", PARTITION_HEADER: "3", OFFSET_HEADER: str(number), REASON_HEADER: SCRIPT}
        value = f"{SCRIPT}{number}".encode() + b"\xff" * 1000
        made = [(name, each.encode()) for name, each in headers.items()]
        producer.produce("letters", value, b"k", number % 2, headers=made)
    producer.commit_transaction()
    with running(job.catalog, job_files=(str(tmp_path / "job.yaml"),)) as client:
        page = client.ask(place).text
        assert SCRIPT not in page
        found = cells(page)
        assert len(found) == 20
        assert {tuple(row[2:4]) for row in found} == {(SCRIPT, "k")}
        assert {row[1].rpartition("/")[0] for row in found} == {"shop.t/3"}
        assert "shop.t/3/49" in [row[1] for row in found]
        assert max(len(row[4]) for row in found) == 200
