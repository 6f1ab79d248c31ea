"""Several files become one job, and every message still knows where a value came from."""

import os
from pathlib import Path

import pytest

from engine.deploy.config.config_file import parse_config
from engine.deploy.config.job_config import JobConfig, load_job
from lsm.errors import InvalidInputError

BASE = """\
name: orders
warehouse: /data/dev
log:
  kafka.bootstrap.servers: localhost:9092
tables:
  shop.orders:
    columns: {id: BIGINT, amount: INT}
    primary_key: [id]
    options: {bucket: 1, log.system: none}
pipelines:
- name: orders
  source: {options: {subscribe: orders, value.format: json}}
  target: shop.orders
  checkpoint: /data/checkpoints/orders
- name: payments
  source: {options: {subscribe: payments}}
  target: shop.payments
  checkpoint: /data/checkpoints/payments
profiles:
  prod:
    warehouse: ${PROD_WAREHOUSE}
    tables: {shop.orders: {options: {bucket: 16}}}
  empty:
"""
Files = dict[str, str]


def loaded(
    home: Path, files: Files, *, profile: str | None = None, sets: tuple[str, ...] = (), **env: str
) -> JobConfig:
    for name, text in files.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    overlays = [str(home / name) for name in files if name.startswith("overlay")]
    return load_job(str(home / "job.yaml"), overlays=overlays, profile=profile, overrides=sets, environment=env)


def refusal(home: Path, files: Files, **more: object) -> str:
    with pytest.raises(InvalidInputError) as caught:
        loaded(home, files, **more)  # type: ignore[arg-type]
    return str(caught.value)


def test_an_overlay_replaces_keys_and_lists_and_leaves_the_rest(tmp_path: Path) -> None:
    overlay = "warehouse: /data/prod\ntables: {shop.orders: {options: {bucket: 8}, primary_key: [amount]}}\n"
    job = loaded(tmp_path, {"job.yaml": BASE, "overlay.yaml": overlay})
    assert job.warehouse == "/data/prod"
    assert job.tables["shop.orders"].options == {"bucket": "8", "log.system": "none"}
    assert job.tables["shop.orders"].primary_key == ("amount",)
    assert [each.name for each in job.pipelines] == ["orders", "payments"]


def test_a_mapping_over_a_list_of_named_things_changes_one_of_them_adds_and_removes(tmp_path: Path) -> None:
    overlay = """
pipelines:
  orders: {trigger: {processing-time: 1s}}
  payments:
  refunds: {source: {options: {subscribe: refunds}}, target: shop.refunds, checkpoint: /r}
"""
    job = loaded(tmp_path, {"job.yaml": BASE, "overlay.yaml": overlay})
    found = [(each.name, each.target, each.trigger.processing_time) for each in job.pipelines]
    assert found == [("orders", "shop.orders", "1 seconds"), ("refunds", "shop.refunds", None)]


def test_later_layers_win_file_over_includes_profile_over_file_overlays_over_profile_and_set_over_all(
    tmp_path: Path,
) -> None:
    files = {
        "job.yaml": "include: [parts/a.yaml, parts/b.yaml]\nstop-timeout: 3s\nprofiles: {p: {stop-timeout: 4s}}\n",
        "parts/a.yaml": BASE + "stop-timeout: 1s\n",
        "parts/b.yaml": "stop-timeout: 2s\nwarehouse: /data/b\n",
    }
    assert loaded(tmp_path, files).stop_timeout == 3
    assert loaded(tmp_path, files).warehouse == "/data/b"
    assert loaded(tmp_path, files, profile="p").stop_timeout == 4
    files["overlay.yaml"] = "stop-timeout: 5s\n"
    assert loaded(tmp_path, files, profile="p").stop_timeout == 5
    assert loaded(tmp_path, files, profile="p", sets=("stop-timeout=6s",)).stop_timeout == 6


def test_a_profile_is_looked_up_only_when_it_is_chosen(tmp_path: Path) -> None:
    files = {"job.yaml": BASE}
    assert loaded(tmp_path, files).warehouse == "/data/dev"
    assert loaded(tmp_path, files, profile="empty").warehouse == "/data/dev"
    job = loaded(tmp_path, files, profile="prod", PROD_WAREHOUSE="/p")
    assert (job.warehouse, job.tables["shop.orders"].options["bucket"]) == ("/p", "16")
    assert "profile=prdo" in refusal(tmp_path, files, profile="prdo")
    assert f"name=PROD_WAREHOUSE file={tmp_path}/job.yaml line=21" in refusal(tmp_path, files, profile="prod")


@pytest.mark.parametrize(
    ("files", "facts"),
    [
        ({"overlay.yaml": "tables:\n  shop.orders:\n    primary_key: [ib]\n"}, ["overlay.yaml line=3", "column=ib"]),
        ({"job.yaml": "include: parts/a.yaml\n", "parts/a.yaml": BASE + "on-failure: maybe\n"}, ["a.yaml line=24"]),
        ({"job.yaml": "include: nowhere.yaml\n"}, ["nowhere.yaml", "included_by=(file=", "line=1"]),
        ({"job.yaml": "name: a\ninclude: job.yaml\n"}, ["includes itself", "line=2"]),
        ({"job.yaml": "include: b.yaml\n", "b.yaml": "include: job.yaml\n"}, ["includes itself", "b.yaml line=1"]),
        ({"job.yaml": "include: {a: b}\n"}, ["a file or a list of files belongs here"]),
        ({"overlay.yaml": "pipelines:\n  orders:\n    trgger: x\n"}, ["[0].trgger", "overlay.yaml line=3", "trigger"]),
        ({"job.yaml": "a: &a [*a]\n"}, ["its own ancestor", "line=1"]),
    ],
)
def test_a_message_names_the_file_and_the_line_where_the_value_is_written(
    tmp_path: Path, files: Files, facts: list[str]
) -> None:
    message = refusal(tmp_path, {"job.yaml": BASE, **files})
    assert [fact for fact in facts if fact not in message] == [], message


def test_a_message_about_a_value_of_the_command_line_says_so(tmp_path: Path) -> None:
    message = refusal(tmp_path, {"job.yaml": BASE}, sets=("stop-timeout=soon",))
    assert "not a duration: key=stop-timeout file=--set stop-timeout given=soon example=30 seconds" in message


def test_a_secret_comes_from_its_file_and_is_in_no_message(tmp_path: Path) -> None:
    files = {"job.yaml": BASE + "stop-timeout: ${file:" + f"{tmp_path}/secret" + "}\n", "secret": "hush\n"}
    assert "hush" not in refusal(tmp_path, files)
    files["job.yaml"] = BASE.replace("localhost:9092", f"${{file:{tmp_path}/secret}}")
    job = loaded(tmp_path, files)
    assert job.catalog_options == {"log.kafka.bootstrap.servers": "hush"}
    assert job.secrets == {"hush"}
    files["job.yaml"] = BASE.replace("localhost:9092", "${file:/nowhere/secret}")
    assert f"path=/nowhere/secret file={tmp_path}/job.yaml line=4" in refusal(tmp_path, files)


@pytest.mark.parametrize("key", ["table-lineage", "data-lineage", "lineage"])
def test_a_section_that_would_do_nothing_is_refused(tmp_path: Path, key: str) -> None:
    assert f"unknown key: key={key}" in refusal(tmp_path, {"job.yaml": BASE + f"{key}: true\n"})


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (("target: shop.orders", "target: shop.orders\n  targets: [shop.b]"), "target or targets"),
        (("target: shop.orders", "targets: [shop.b, {table: shop.b}]"), "a table is a target twice"),
        (
            ("target: shop.orders", "target: shop.orders\n  limits: {files: 3}"),
            "limit=files format=kafka known=records",
        ),
        (("target: shop.orders", "target: shop.orders\n  limits: {records: 0}"), "pipelines[0].limits.records"),
        (("log:\n", "catalog: {log.kafka.bootstrap.servers: b}\nlog:\n"), "given twice"),
        (("amount: INT", "amount: INTT"), "not a type: key=tables.shop.orders.columns.amount.type"),
        (("name: orders\nw", "on-failure: {policy: retry}\nname: orders\nw"), "unknown policy: key=on-failure.policy"),
        (("name: orders\nw", "logging: {level: loud}\nname: orders\nw"), "unknown level"),
        (("name: orders\nw", "health: {port: 99999}\nname: orders\nw"), "health.port"),
        (("name: orders\nw", "health: {port: many}\nname: orders\nw"), "value=many fix=write digits only"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, change: tuple[str, str], facts: str) -> None:
    assert change[0] in BASE
    assert facts in refusal(tmp_path, {"job.yaml": BASE.replace(*change, 1)})


def test_several_targets_have_the_options_of_the_pipeline_and_their_own(tmp_path: Path) -> None:
    second = "{table: shop.b, transform: SELECT 1, options: {write-only: false}}"
    targets = f"targets: [shop.a, {second}]\n  options: {{write-only: true}}"
    job = loaded(tmp_path, {"job.yaml": BASE.replace("target: shop.orders", targets, 1)})
    outputs = job.pipelines[0].outputs
    assert [(each.table, each.options["write-only"], len(each.transform)) for each in outputs] == [
        ("shop.a", "true", 0),
        ("shop.b", "false", 1),
    ]


def test_some_pipelines_can_be_chosen(tmp_path: Path) -> None:
    job = loaded(tmp_path, {"job.yaml": BASE})
    assert [each.name for each in job.chosen(["payments"]).pipelines] == ["payments"]
    assert job.chosen(["payments"]).where(("pipelines", 0)).endswith("job.yaml line=15")
    assert job.chosen([]) == job
    with pytest.raises(InvalidInputError, match=r"pipeline=payment .*did_you_mean=payments"):
        job.chosen(["payment"])


BOMBS = {
    "aliases": "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12)),
    "maps": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{{', '.join(f'k{k}: *a{n - 1}' for k in range(9))}}}\n" for n in range(1, 12)),
    "merges": "a0: &a0 {x: 1}\n"
    + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 12)),
    "lists in lists": "a: " + "[" * 5000 + "]" * 5000,
    "maps in maps": "a: " + "{a: " * 3000 + "1" + "}" * 3000,
    "levels": "a: " + "[" * 100 + "]" * 100,
}


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
def test_a_small_file_of_many_values_or_levels_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidInputError, match=r"(too many values|nested too deeply).*file=job.yaml"):
        parse_config(text, name="job.yaml")


def test_aliases_in_measure_are_read() -> None:
    found = parse_config("a: &a {x: 1}\nb: [" + ", ".join(["*a"] * 1000) + "]\nc: {<<: *a, y: 2}\n", name="job.yaml")
    assert isinstance(found.content, dict)


TAGS = (
    "!!python/object/apply:os.system ['touch {out}']",
    "!!python/object/new:os.system ['touch {out}']",
    "!!python/name:os.system",
    "!!python/module:os",
    "!!python/tuple [1]",
    "!include {out}",
    "!ENV HOME",
    "!!js/function 'x'",
    "!<tag:evil.example,2024:x> y",
)


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_makes_nothing(tag: str, tmp_path: Path) -> None:
    """In place of a value, of a list, and of the whole file: the error names file, line and tag."""
    value = tag.format(out=tmp_path / "out")
    for text in (f"{BASE}x: {value}\n", f"{BASE}x: [{value}]\n", value):
        said = refusal(tmp_path, {"job.yaml": text})
        assert "job.yaml" in said
        assert "tag" in said
    assert not (tmp_path / "out").exists()


def test_an_included_pipe_or_endless_file_lets_no_one_wait(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert "not a regular file" in refusal(tmp_path, {"job.yaml": "include: pipe\n"})
    assert "at most" in refusal(tmp_path, {"job.yaml": "include: sparse\n"})


def test_a_key_that_is_no_name_is_refused(tmp_path: Path) -> None:
    for text in ("? [a]\n: b\n", "{{a: b}: c}\n"):
        assert "a key is a list or a mapping" in refusal(tmp_path, {"job.yaml": text})
