"""One secret in every place where options are given, and every way in which something is shown."""

import ast
import logging
import pickle
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from engine import Catalog
from engine.cli.app import run_command
from engine.deploy.config.job_config import load_job, parse_job
from engine.kafka.options import KafkaSourceOptions
from filestore.options.catalog_options import CatalogOptions
from filestore.options.table_options import TableOptions
from logstore.kafka.clients import KafkaProperties
from lsm.errors import FluvialError, InvalidInputError

SECRET = "LEAKME"
ROOT = Path(__file__).resolve().parents[3]
SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
OWN = {key: SECRET for key, option in CatalogOptions.declared.items() if option.is_secret} | {
    "openlineage.url": f"http://localhost:1/api?api_key={SECRET}",
    "lineage-meta.token": SECRET,
    "uri": f"postgresql://u:{SECRET} {SECRET}@w@h/x",
}
CLIENT = {
    "sasl.password": SECRET,
    "sasl.jaas.config": f'x.LoginModule required username="u" password="{SECRET}";',
    "sasl.oauthbearer.config": f"scope=x pw={SECRET}",
    "ssl.key.pem": f"-----BEGIN {SECRET}",
    "ssl.key.password": SECRET,
}
DEFAULTS = {f"log.kafka.{key}": value for key, value in CLIENT.items()}
JOB = f"""\
name: job
warehouse: {{home}}/wh
catalog: {{{{s3.secret-key: "{SECRET}", openlineage.api-key: "{SECRET}", log.kafka.ssl.key.pem: "{SECRET}"}}}}
log: {{{{kafka.sasl.password: "{SECRET}"}}}}
spark: {{{{conf: {{{{spark.hadoop.fs.s3a.secret.key: "{SECRET}"}}}}}}}}
tables:
  shop.a: {{{{columns: {{{{id: BIGINT}}}}, primary_key: [id], options: {{{{bucket: 1, log.system: none}}}}}}}}
  d.t:
    columns: {{{{id: BIGINT NOT NULL, v: STRING}}}}
    primary_key: [id]
    options: {{{{bucket: 1, computed-column-comment.token: "other {SECRET}"}}}}
pipelines:
- name: p
  source:
    format: kafka
    options: {{{{kafka.bootstrap.servers: "localhost:1", subscribe: x, value.format: debezium-json,
      kafka.sasl.password: "{SECRET}", kafka.ssl.key.pem: "{SECRET}",
      schema.registry.basic.auth.user.info: "u:{SECRET}", kafka.socket.timeout.ms: "500"}}}}
  target: shop.a
  checkpoint: {{home}}/checkpoint
"""


def given(options: dict[str, str]) -> list[str]:
    return [word for key, value in options.items() for word in ("--catalog-option", f"{key}={value}")]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """Run a command with --debug; all that it prints and logs, without the secret in it."""
    caplog.set_level(logging.DEBUG)

    def run(*words: str, code: int | None = None) -> str:
        capsys.readouterr()
        found = run_command(["--debug", *words])
        captured = capsys.readouterr()
        ours = [each.getMessage() for each in caplog.records if each.name.startswith("fluvial")]
        text = captured.out + captured.err + "".join(ours)
        assert code is None or found == code, text
        assert SECRET not in text, (words, [line for line in text.splitlines() if SECRET in line])
        return captured.out + captured.err

    return run


@pytest.mark.sweep
def test_no_command_shows_a_secret_of_catalog_or_table(tmp_path: Path, shown: Callable[..., str]) -> None:
    options = {key: value for key, value in OWN.items() if key != "uri"}
    catalog = Catalog(str(tmp_path), options={**options, **DEFAULTS})
    table = catalog.create_table("d.t", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    table.write(pa.table({"id": [1], "v": ["a"]}, schema=SCHEMA))
    place = ["--warehouse", str(tmp_path), *given({**OWN, **DEFAULTS, "metastore": "jdbc"})]
    for words in (
        ["config"],
        ["config", "--all"],
        ["config", "--json"],
    ):
        assert "******" in shown(*words, *place, code=0)
    plain = ["--warehouse", str(tmp_path), *given({key: value for key, value in OWN.items() if key != "uri"})]
    for words in (["config", "d.t"], ["config", "d.t", "--json"]):
        assert "******" in shown(*words, *plain, code=0)
    for name in ("d.t$options", "d.t$schemas", "d.t$snapshots", "sys.all_table_options", "sys.catalog_options"):
        shown("read", name, "--json", *plain, code=0)
    for words in (
        ["describe", "d.t"], ["doctor"], ["doctor", "--json"], ["verify", "d.t"], ["inspect", "d.t"],
        ["inspect", "d.t", "--html", str(tmp_path / "page.html")],
        *(["sql", "-e", text] for text in (
            "SHOW CREATE TABLE d.t", "SHOW TBLPROPERTIES d.t", "DESCRIBE TABLE EXTENDED d.t",
            "SHOW TBLPROPERTIES d.t ('log.kafka.sasl.password')",
        )),
    ):  # fmt: skip
        shown(*words, *plain)
    assert all(SECRET not in path.read_text(errors="replace") for path in tmp_path.glob("*.html"))
    objects = (catalog, table, table.files, table.store, table.store.schema, table.store.options, table.read())
    assert [each for each in map(repr, objects) if SECRET in each] == []
    assert SECRET not in str([getattr(each, "__dict__", "") and repr(each) for each in vars(catalog).values()])


@pytest.mark.sweep
def test_no_command_shows_a_secret_of_a_job_file(tmp_path: Path, shown: Callable[..., str]) -> None:
    job = tmp_path / "job.yaml"
    job.write_text(JOB.format(home=tmp_path))
    Catalog(str(tmp_path / "wh")).create_table(
        "d.t", SCHEMA, primary_key=["id"], options={"bucket": "1", "computed-column-comment.token": SECRET}
    )
    shown("validate", str(job), code=0)
    assert "******" in shown("validate", str(job), "--json", code=0)
    for words in (["plan"], ["plan", "--json"]):
        shown(*words, str(job))
    shown("config", "--config", str(job))
    assert SECRET not in repr(load_job(str(job), environment={}))


@pytest.mark.sweep
def test_no_plan_shows_the_options_that_differ(tmp_path: Path, shown: Callable[..., str]) -> None:
    """The statement that a plan would run has the secret, what is shown of it has not."""
    catalog = Catalog(str(tmp_path / "wh"))
    for name in ("a", "t"):
        catalog.create_table(f"d.{name}", SCHEMA, primary_key=["id"], options={"bucket": "1"})
    job = tmp_path / "job.yaml"
    job.write_text(
        f"""\
name: job
warehouse: {tmp_path}/wh
tables:
  d.t:
    columns: {{id: BIGINT NOT NULL, v: STRING}}
    primary_key: [id]
    options: {{bucket: 1, computed-column-comment.token: "{SECRET}"}}
pipelines:
- {{name: p, source: {{format: fluvial, options: {{table: d.a}}}}, target: d.t, checkpoint: {tmp_path}/c}}
"""
    )
    assert "'computed-column-comment.token' = ******" in shown("plan", str(job), "--json", code=0)
    shown("plan", str(job), code=0)
    assert "******" in shown("plan", str(job), "--apply", "--yes", "--json", code=0)
    assert catalog.table("d.t").store.schema.options["computed-column-comment.token"] == SECRET
    job.write_text(job.read_text().replace("computed-column-comment.token", "log.kafka.sasl.password"))
    assert "a table stores no login: options=log.kafka.sasl.password" in shown("validate", str(job), code=2)


WRONG_JOBS = {
    "a mapping under an option": f"catalog: {{options: {{s3.secret-key: {SECRET}}}}}",
    "a list under an option": f"catalog: {{options: [{SECRET}, {SECRET}]}}",
    "a text in place of options": f"catalog: 's3.secret-key={SECRET}'",
    "a list in place of options": f"catalog: [s3.secret-key={SECRET}]",
    "a mapping in place of a number": f"metrics: {{port: {{password: {SECRET}}}}}",
    "a text in place of a section": f"metrics: 'password={SECRET}'",
    "a mapping in place of a name": f"warehouse: {{s3.secret-key: {SECRET}}}",
    "a login in a wrong place": f"trigger: 'postgresql://u:{SECRET}@h/x'",
    "a quote that is not closed": f'catalog: {{s3.secret-key: "{SECRET}',
    "an alias": f"catalog: {{s3.secret-key: *{SECRET}}}",
    "a bracket": f"catalog: {{s3.secret-key: {SECRET}}}}}]",
    "a tab": f"catalog:\n  s3.secret-key: {SECRET}\n\tx: {SECRET}",
}


@pytest.mark.parametrize("name", WRONG_JOBS)
def test_a_wrong_job_file_is_named_by_keys_and_types(name: str) -> None:
    text = f"name: job\nwarehouse: /w\npipelines: []\n{WRONG_JOBS[name]}"
    if name == "a mapping in place of a name":
        text = text.replace("warehouse: /w\n", "")
    with pytest.raises(InvalidInputError) as caught:
        parse_job(text, name="job.yaml", environment={})
    assert SECRET not in everything(caught.value)


def everything(error: BaseException) -> str:
    """All that can be shown of an error."""
    return "".join(traceback.format_exception(error)) + repr(error) + str(pickle.loads(pickle.dumps(error)))


BAD: dict[str, Callable[[Path], Any]] = {
    "two spellings": lambda _: TableOptions.parse(
        {"log.kafka.sasl.password": SECRET, "table-storage.log.kafka.sasl.password": f"{SECRET}2"}
    ),
    "two spellings of a catalog": lambda _: CatalogOptions.parse({"s3.secret-key": SECRET, "s3.secret.key": "x"}),
    "an address of a choice": lambda _: CatalogOptions.parse({"metastore": f"postgresql://u:{SECRET}@h"}),
    "a number with a login": lambda _: TableOptions.parse({"bucket": f"http://u:{SECRET}@h"}),
    "a warehouse with a login": lambda _: Catalog(f"ftp://u:{SECRET}@h/x"),
    "a database that is none": lambda path: Catalog(
        str(path), options={"metastore": "jdbc", "uri": f"oracle://u:{SECRET}@h/x"}
    ),
    "a database that is down": lambda path: Catalog(
        str(path), options={"metastore": "jdbc", "uri": f"postgresql://u:{SECRET}@localhost:1/x?sslkey={SECRET}"}
    ).list_databases(),
    "a store of lineage that is down": lambda path: Catalog(
        str(path),
        options={"jdbc.url": f"postgresql://u:{SECRET}@localhost:1/x", "lineage.on-unavailable": "fail"},
    ).create_table("d.t", SCHEMA),
    "a client that refuses": lambda _: KafkaProperties.parse(
        {**CLIENT, "bootstrap.servers": "localhost:1", "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}
    ).admin(print),  # type: ignore[arg-type]
    "a source without its registry": lambda _: KafkaSourceOptions.parse(
        {
            "kafka.bootstrap.servers": "localhost:1",
            "subscribe": "x",
            "kafka.sasl.password": SECRET,
            "schema.registry.url": f"http://u:{SECRET}@h?k={SECRET}",
            "value.format": "raw",
        }
    ),
    "a source with the registry at no address": lambda _: KafkaSourceOptions.parse(
        {
            "kafka.bootstrap.servers": "localhost:1",
            "subscribe": "x",
            "value.format": "debezium-avro",
            "schema.registry.url": f"ftp://u:{SECRET}@h?k={SECRET}",
        }
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_no_error_holds_a_secret(name: str, tmp_path: Path) -> None:
    with pytest.raises(FluvialError) as caught:
        BAD[name](tmp_path)
    assert SECRET not in everything(caught.value)


@pytest.mark.parametrize(
    "words",
    [
        ["config", "--catalog-option", f"s3.secret-key:{SECRET}"],
        ["config", "--catalog-option", f"s3.secret-ke={SECRET}"],
        ["sql", "-e", f"CREATE TABEL t WITH ('s3.secret-key' = '{SECRET}')"],
        ["sql", "-e", f"ALTER TABLE d.t SET TBLPROPERTIES ('log.kafka.sasl.password' '{SECRET}', = )"],
    ],
)
def test_no_error_of_a_command_repeats_a_secret(words: list[str], tmp_path: Path, shown: Callable[..., str]) -> None:
    shown(*words, "--warehouse", str(tmp_path), code=2)


# ---- what a new class must not bring back

SECRETIVE = re.compile(r"Mapping\[str, str\]|dict\[str, str\]|\bOptions\b|^(url|uri|password) ")
# of a snapshot: for all to see
PUBLIC = ["Snapshot.properties", "Committable.properties", "CommitTime.properties"]
NAMES = {"options", "properties", "conf", "given", "settings", "by_name", "secrets", "texts", "url", "uri", "password"}


@pytest.mark.sweep
def test_objects_with_options_do_not_show_them() -> None:
    """A data class with texts by key leaves them out of its repr."""
    found = [
        f"{path.relative_to(ROOT)}: {kind.name}.{each.target.id}"
        for package in ("engine", "filestore", "logstore")
        for path in (ROOT / package).rglob("*.py")
        for kind in ast.walk(ast.parse(path.read_text()))
        if isinstance(kind, ast.ClassDef) and any("dataclass" in ast.unparse(each) for each in kind.decorator_list)
        for each in kind.body
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id in NAMES
        if SECRETIVE.search(f"{each.target.id} {ast.unparse(each.annotation)}")
        and "repr=False" not in ast.unparse(each)
    ]
    assert [each for each in found if each.rpartition(": ")[2] not in PUBLIC] == []
