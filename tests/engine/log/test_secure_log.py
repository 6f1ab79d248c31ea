"""A log behind TLS, logins and access lists: what each role needs, and what the error says where something is wrong."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest

from engine import Catalog, Table
from engine.cli.app import run_command
from engine.cli.exit_codes import EXIT_INVALID
from engine.deploy.config.operation_config import RESTART, OnFailureConfig
from engine.deploy.pipeline.supervision import restart_after
from engine.log.table_log import TableLog
from engine.monitor.doctor import diagnose, examine
from engine.monitor.symptom import Severity
from engine.versions.branches import create_branch
from filestore.evolution.schema_change import SetOption
from logstore.kafka import topics as topics_module
from logstore.kafka.clients import KafkaProperties
from logstore.kafka.topics import LogTopics
from logstore.log.log_reader import read_range
from logstore.log.log_writer import BucketLogWriter, LogTarget
from logstore.offsets import LogRange
from lsm.errors import InvalidInputError, UnavailableError
from tests.stores.secure_broker import Right, SecureBroker
from tests.support.logs import log_changes
from tests.support.rows import id_rows
from tests.support.waiting import eventually
from tests.support.warehouses import ID_SCHEMA

SOON_S = 20.0
"""Of a machine that is busy: the refusals themselves come within a second or two."""


def in_catalog(options: Mapping[str, str]) -> dict[str, str]:
    return {f"log.kafka.{name}": value for name, value in options.items()}


class Place:
    """A warehouse, and the topic and ids of its one table."""

    def __init__(self, warehouse: Path, broker: SecureBroker) -> None:
        self.warehouse, self.broker = str(warehouse), broker
        self.table = f"db.t{uuid4().hex}"

    def open(self, options: Mapping[str, str]) -> Catalog:
        return Catalog(self.warehouse, options=in_catalog(options))

    def on_topic(self, *operations: str) -> list[Right]:
        return [Right(operation, "TOPIC", self.table) for operation in operations]

    def owner(self) -> Mapping[str, str]:
        """A user with every right."""
        ids = Right("ALL", "TRANSACTIONAL_ID", "fluvial.", is_prefix=True)
        return self.broker.new_user(Right("ALL", "TOPIC", self.table, is_prefix=True), ids)

    def make(self, rows: int = 0) -> Table:
        """The table, and the first of its rows, by a user with every right."""
        owner = [
            Right("ALL", "TOPIC", self.table, is_prefix=True),
            Right("ALL", "TRANSACTIONAL_ID", "fluvial.", is_prefix=True),
        ]
        made = create(self, self.broker.new_user(*owner))
        if rows:
            made.write(id_rows(list(range(rows))))
        return made


@pytest.fixture
def place(tmp_path: Path, secure_broker: SecureBroker) -> Place:
    return Place(tmp_path / "warehouse", secure_broker)


def create(place: Place, options: Mapping[str, str]) -> Table:
    given = {"bucket": "1", "log.retention": "2 h"}
    return place.open(options).create_table(place.table, ID_SCHEMA, primary_key=["id"], options=given)


def write(place: Place, options: Mapping[str, str]) -> None:
    place.open(options).table(place.table).write(id_rows([7]))


def read(place: Place, options: Mapping[str, str]) -> None:
    table = place.open(options).table(place.table)
    assert [row["id"] for _, row in log_changes(table)] == [0, 1]


def alter(place: Place, options: Mapping[str, str]) -> None:
    place.open(options).alter_table(place.table, [SetOption("log.retention", "3 h")])


def watch(place: Place, options: Mapping[str, str]) -> None:
    assert place.open(options).table(place.table).log_end_offsets()[0] >= 2


def examined(place: Place, options: Mapping[str, str]) -> None:
    findings = {each.check: each for each in diagnose(examine(place.open(options).table(place.table)))}
    assert findings["topic"].severity is Severity.OK


def show(place: Place, options: Mapping[str, str]) -> None:
    settings = LogTopics(KafkaProperties.parse(options))
    eventually(lambda: settings.topic_config(place.table)["retention.ms"], "7200000")


def drop(place: Place, options: Mapping[str, str]) -> None:
    place.open(options).drop_table(place.table)


IDS = "TRANSACTIONAL_ID"
# The table of docs/kafka-security.md: what a role does, and the rights without which it does not.
ROLES: Mapping[str, tuple[Callable[[Place, Mapping[str, str]], object], int, tuple[str, ...]]] = {
    "creator": (create, -1, ("CREATE", "DESCRIBE")),
    "writer": (write, 2, ("READ", "WRITE", IDS)),
    "reader": (read, 2, ("READ",)),
    "watcher": (watch, 2, ("DESCRIBE",)),
    "examiner": (examined, 2, ("READ",)),
    "dropper": (drop, 0, ("DELETE",)),
    "administrator of settings": (alter, 0, ("ALTER_CONFIGS",)),
    "observer of settings": (show, 0, ("DESCRIBE_CONFIGS",)),
}
NAMES = {
    "CREATE": "Create",
    "DESCRIBE": "Describe",
    "READ": "Read",
    "WRITE": "Write",
    "DELETE": "Delete",
    "ALTER_CONFIGS": "AlterConfigs",
    "DESCRIBE_CONFIGS": "DescribeConfigs",
}


def rights(place: Place, names: tuple[str, ...]) -> list[Right]:
    found = place.on_topic(*(name for name in names if name != IDS))
    if IDS in names:
        table_id = place.open({}).table(place.table).schema.options["log.transactional-id.prefix"]
        found.append(Right("WRITE", IDS, f"fluvial.{table_id}.", is_prefix=True))
    return found


def acting(place: Place, role: str, without: str | None = None) -> Mapping[str, str]:
    """The client's options of a user in this role, with its rights but one; its table is made if it needs one."""
    _, rows, needed = ROLES[role]
    if rows >= 0:
        place.make(rows)
    return place.broker.new_user(*rights(place, tuple(name for name in needed if name != without)))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("role", ROLES)
def test_a_role_needs_no_more_than_its_rights(place: Place, role: str) -> None:
    """FL-54: nobody needs a consumer group, and nobody a right on the cluster."""
    ROLES[role][0](place, acting(place, role))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("role", "right"), [(role, right) for role, (_, _, needed) in ROLES.items() for right in needed]
)
def test_each_right_is_needed_and_its_lack_names_right_resource_and_user(place: Place, role: str, right: str) -> None:
    user = acting(place, role, without=right)
    began = time.monotonic()
    with pytest.raises(InvalidInputError) as caught:
        ROLES[role][0](place, user)
    assert time.monotonic() - began < SOON_S
    said = str(caught.value)
    if right == IDS:
        assert "missing_right='Write on transactional-id fluvial." in said
        assert "--transactional-id fluvial." in said
    else:
        # who may nothing at all on a topic is refused its description first
        missing = {NAMES[right], "Describe"} if len(ROLES[role][2]) == 1 else {NAMES[right]}
        assert any(f"missing_right='{name} on topic {place.table}'" in said for name in missing), said
        assert f"--topic {place.table}" in said
    assert f"--allow-principal User:{user['sasl.username']} " in said
    assert user["sasl.password"] not in said


@pytest.mark.parametrize("missing", [None, "WRITE", IDS])
def test_a_topic_that_exists_is_adopted_with_the_rights_of_its_writer(place: Place, missing: str | None) -> None:
    """FL-54: no Create and no AlterConfigs; and no Delete when the table is dropped, because the topic stays."""
    topics = LogTopics(KafkaProperties.parse(place.owner()))
    topics.create_topic(place.table, bucket_count=1)
    ids = Right("WRITE", IDS, "fluvial.", is_prefix=True)
    of_topic = [each for each in place.on_topic("DESCRIBE", "WRITE") if each.operation != missing]
    user = place.broker.new_user(*of_topic, *([] if missing == IDS else [ids]))

    def adopt() -> None:
        options = {"log.kafka.topic": place.table}
        place.open(user).create_table("db.adopting", ID_SCHEMA, primary_key=["id"], options=options)

    if missing is None:
        adopt()
        place.open(user).drop_table("db.adopting")
        assert topics.end_offsets(place.table, [0]) == {0: 2}
    else:
        named = f"Write on topic {place.table}'" if missing == "WRITE" else "Write on transactional-id fluvial."
        with pytest.raises(InvalidInputError, match=f"missing_right='{named}"):
            adopt()
        assert not place.open(user).table_exists("db.adopting")


def test_the_doctor_says_that_it_may_not_read_the_topic(place: Place) -> None:
    place.make(rows=2)
    found = {
        each.check: each
        for each in diagnose(examine(place.open(place.broker.new_user(*place.on_topic("DESCRIBE"))).table(place.table)))
    }
    assert found["topic"].severity is Severity.NOTE
    assert "missing_right='Read on topic" in found["topic"].fact


def test_a_drop_that_is_not_allowed_leaves_the_table_whole(place: Place) -> None:
    place.make(rows=2)
    user = place.broker.new_user(*place.on_topic("READ", "WRITE"))
    with pytest.raises(InvalidInputError, match="missing_right='Delete on topic"):
        drop(place, user)
    assert place.open({}).table(place.table).read().to_arrow().num_rows == 2


def test_no_file_of_a_table_has_the_secret_of_its_catalog(place: Place) -> None:
    """Whoever may read the files would have the rights of who made the table."""
    table = place.make(rows=2)
    assert table.log is not None
    given = {f"log.kafka.{name}": value for name, value in table.log.properties.by_name.items()}
    secret = given["log.kafka.sasl.password"]
    catalog = Catalog(place.warehouse, options=given)
    wide = pa.table({"id": [9], "v": ["x"], "more": ["y"]})
    catalog.table(place.table).write(wide, options={"write.merge-schema": "true"})
    catalog.alter_table(place.table, [SetOption("log.retention", "3 h")])
    create_branch(catalog.table(place.table).store, "side", log=True)
    files = [path for path in Path(place.warehouse).rglob("*") if path.is_file()]
    assert [str(path) for path in files if secret.encode() in path.read_bytes()] == []
    assert not any(given["log.kafka.sasl.username"].encode() in path.read_bytes() for path in files)
    with pytest.raises(UnavailableError, match=r"fix=check log\.kafka\.security\.protocol"):
        Catalog(place.warehouse).table(place.table).log_end_offsets()


def test_the_login_holds_on_every_branch(place: Place) -> None:
    """The user of the catalog writes branches and drops their topics; the one who made the table may be gone."""
    create_branch(place.make(rows=1).store, "side", log=True)
    catalog = place.open(place.owner())
    main = catalog.table(place.table)
    for side in (catalog.table(place.table, branch="side").log, TableLog.of(main.files.on_branch("side"))):
        assert side is not None
        assert main.log is not None
        assert (side.properties.user, side.topic) == (main.log.properties.user, f"{place.table}.side")
    main.write(id_rows([3]), options={"branch": "side"})
    assert catalog.drop_table(place.table) == []


def test_the_login_is_that_of_the_catalog_and_not_of_who_made_the_table(place: Place) -> None:
    table = place.make(rows=1)
    creator, other = table.log, place.open(place.broker.new_user()).table(place.table).log
    assert creator is not None
    assert other is not None
    assert other.properties.user != creator.properties.user
    elsewhere = {**place.broker.new_user(), "bootstrap.servers": place.broker.misnamed_servers}
    kept = place.open(elsewhere).table(place.table).log
    assert kept is not None
    assert kept.properties.user == "ANONYMOUS", "a login goes to the brokers that it is for, and nowhere else"
    assert not {"sasl.username", "sasl.password"} & kept.properties.by_name.keys()


WRONG: Mapping[str, tuple[Mapping[str, str | None], type[Exception], str]] = {
    "password": ({"sasl.password": "WRONG"}, InvalidInputError, "log.kafka.sasl.password"),
    "user": ({"sasl.username": "mallory"}, InvalidInputError, "log.kafka.sasl.username"),
    "mechanism": ({"sasl.mechanism": "PLAIN"}, InvalidInputError, "fix=set log.kafka.sasl.mechanism"),
    "no mechanism": ({"sasl.mechanism": None}, InvalidInputError, "option=log.kafka.sasl.mechanism"),
    "no password": ({"sasl.password": None}, InvalidInputError, "option=log.kafka.sasl.password"),
    "authority": ({"ssl.ca.location": None}, InvalidInputError, "by an unknown authority: broker=localhost"),
    "no such file": ({"ssl.ca.location": "/none.pem"}, InvalidInputError, "option=log.kafka.ssl.ca.location"),
    "host name": ({"bootstrap.servers": "@misnamed"}, InvalidInputError, "is for another host name: broker=127.0.0.1"),
    "port": ({"bootstrap.servers": "@plain"}, UnavailableError, "and the port in log.kafka.bootstrap.servers"),
    "login at the plain port": (
        {"bootstrap.servers": "@plain", "security.protocol": "SASL_PLAINTEXT"},
        InvalidInputError,
        "this listener of the brokers has no logins",
    ),
    "no TLS": ({"security.protocol": "PLAINTEXT"}, UnavailableError, "fix=check log.kafka.security.protocol"),
    "no login": ({"security.protocol": "SSL"}, UnavailableError, "fix=check log.kafka.security.protocol"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_option_is_named_soon_and_no_secret_is(
    secure_broker: SecureBroker, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """FL-54: a refused login or certificate is no broker that is away, which is waited for."""
    monkeypatch.setattr(topics_module, "FIRST_CONTACT_S", 1.0)
    changes, kind, named = WRONG[case]
    right = secure_broker.new_user()
    servers = {"@misnamed": secure_broker.misnamed_servers, "@plain": secure_broker.bootstrap_servers}
    given = {name: servers.get(value, value) for name, value in {**right, **changes}.items() if value is not None}
    began = time.monotonic()
    with pytest.raises((InvalidInputError, UnavailableError)) as caught:
        LogTopics(KafkaProperties.parse(given)).check_reachable()
    assert time.monotonic() - began < SOON_S
    assert caught.type is kind
    assert named in str(caught.value)
    assert right["sasl.password"] not in str(caught.value)
    assert "WRONG" not in str(caught.value)


def test_every_client_stops_at_a_wrong_password_and_a_supervisor_does_not_try_again(
    secure_broker: SecureBroker,
) -> None:
    properties = KafkaProperties.parse({**secure_broker.new_user(), "sasl.password": "WRONG"})
    calls = {
        "writer": lambda: BucketLogWriter(
            LogTarget(properties=properties, topic="t", table_uuid="u", bucket=0)
        ).fence(),
        "reader": lambda: list(
            read_range(properties, topic="t", log_range=LogRange(bucket=0, start_offset=0, end_offset=1))
        ),
        "admin": lambda: LogTopics(properties).find_topic("t"),
    }
    for call in calls.values():
        began = time.monotonic()
        with pytest.raises(InvalidInputError, match=r"log\.kafka\.sasl\.password") as caught:
            call()
        assert time.monotonic() - began < SOON_S
        assert restart_after(OnFailureConfig(policy=RESTART), caught.value, 0) is None


def test_a_topic_without_rights_is_not_taken_for_a_missing_or_a_silent_one(place: Place) -> None:
    """A task whose rights were taken away must not advise to give the table a new log."""
    place.make(rows=1)
    ids = Right("WRITE", IDS, "fluvial.", is_prefix=True)
    properties = KafkaProperties.parse(place.broker.new_user(ids))
    with pytest.raises(InvalidInputError, match=f"missing_right='Read on topic {place.table}'"):
        BucketLogWriter(LogTarget(properties=properties, topic=place.table, table_uuid="u", bucket=0)).fence()
    with pytest.raises(InvalidInputError, match=f"missing_right='Read on topic {place.table}'"):
        list(read_range(properties, topic=place.table, log_range=LogRange(bucket=0, start_offset=0, end_offset=1)))


def test_the_command_line_works_with_the_right_secret_and_names_the_wrong_one(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.make(rows=2)
    reader = place.broker.new_user(*place.on_topic("READ"))

    def run(*arguments: str, **changes: str) -> tuple[int, str]:
        options = in_catalog({**reader, **changes})
        code = run_command(
            [*arguments, "--warehouse", place.warehouse]
            + [word for key, value in options.items() for word in ("--catalog-option", f"{key}={value}")]
        )
        return code, "".join(capsys.readouterr())

    assert run("lag", place.table)[0] == 0
    code, said = run("doctor", place.table)
    assert (code, "log: the log is 0 rows ahead" in said) == (0, True)
    wrong = {"sasl.password": "WRONG-one"}
    code, said = run("lag", place.table, **wrong)
    assert code == EXIT_INVALID
    assert "log.kafka.sasl.password" in said
    code, shown = run("config", **wrong)
    assert code == 0
    assert "log.kafka.sasl.password" in shown
    assert "WRONG-one" not in said + shown
    assert reader["sasl.password"] not in said + shown


def test_the_clients_debug_output_has_no_secret(secure_broker: SecureBroker) -> None:
    program = (
        "import json, logging, sys; from logstore.kafka.clients import KafkaProperties;"
        "from logstore.kafka.topics import LogTopics; logging.basicConfig(level=logging.DEBUG);"
        "LogTopics(KafkaProperties.parse(json.load(sys.stdin))).check_reachable()"
    )
    user = {**secure_broker.new_user(), "debug": "all", "log_level": "7"}
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(user), capture_output=True, text=True, check=True
    )
    assert user["sasl.username"] in done.stderr
    assert user["sasl.password"] not in done.stderr + done.stdout
