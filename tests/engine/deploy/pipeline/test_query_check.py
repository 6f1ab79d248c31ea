"""Mistakes in the queries of a job file are found before Spark starts, and queries that Spark runs are not refused."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine.catalog import Catalog
from engine.deploy.config.job_config import JobConfig
from engine.deploy.pipeline.query_check import check_queries, job_tables
from engine.deploy.plan import make_plan
from lsm.errors import InvalidInputError

Fluvial = Callable[..., tuple[int, str, str]]
COLUMNS = {"dt": "STRING", "id": "BIGINT", "customer": "STRING", "amount": "DECIMAL(10, 2)", "at": "TIMESTAMP(3)"}
TABLE = {"columns": COLUMNS, "primary_key": ["dt", "id"], "options": {"bucket": "1", "log.system": "none"}}


def job_with(
    *steps: Any, source: dict[str, Any] | None = None, table: dict[str, Any] | None = None, **more: Any
) -> JobConfig:
    brokers = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders", "value.format": "debezium-json"}
    pipeline = {
        "name": "orders",
        "source": source or {"options": brokers},
        "transform": [*steps],
        "target": "shop.orders",
        "checkpoint": "c",
        **more,
    }
    tables = {"shop.orders": TABLE | (table or {}), "shop.lines": TABLE}
    return JobConfig.model_validate({"name": "j", "warehouse": "w", "tables": tables, "pipelines": [pipeline]})


def casts(config: JobConfig) -> list[str]:
    found = check_queries(config, config.pipelines[0], job_tables(config))
    return [str(each) for each in found.get("shop.orders", ())]


@pytest.mark.parametrize(
    ("sql", "message"),
    [
        ("SELECT * FROM sauce", "no such view: view=sauce known=source"),
        ("SELECT * FROM source JOIN lines USING (id)", "no such view: view=lines"),
        ("SELECT /*+ OPTIONS('change-tracking'='false') */ * FROM source", r"no table takes this hint: .*/\*\+"),
        ("SELECT * FROM source x /*+ OPTIONS('no.such'='1') */", "no table takes this hint"),
        ("SELECT * FROM source /*+ OPTIONS('no.such'='1') */", r"a view takes no options: view=source .*no\.such"),
        ("WITH q AS (FROM source) SELECT * FROM q /*+ OPTIONS('a'='b') */", "a view takes no options: view=q"),
        ("SELECT dt, id, custmer, _row_kind FROM source", "no such column: column=custmer .* did_you_mean=customer"),
        ("SELECT dt, id, _row_kind FROM source WHERE amuont > 1", "column=amuont .* did_you_mean=amount"),
        ("SELECT s.nope, dt, id, _row_kind FROM source s", "no such column: column=nope"),
        ("SELECT dt, id, customer AS custmer, _row_kind FROM source",
         "the table has no such column: table=shop.orders column=custmer did_you_mean=customer"),
        ("SELECT *, 1 AS one FROM source", "the table has no such column: table=shop.orders column=one columns="),
        ("SELECT id, amount, _row_kind FROM source", "a NOT NULL column is missing: .* column=dt fix='select dt'"),
        ("SELECT dt, id, customer FROM source", "the transform loses the row kinds"),
        ("SELECT dt, id, customer AS amount, _row_kind FROM source",
         r"another kind than its column: .* column=amount given=string wanted=decimal\(10, 2\) fix='CAST"),
        ("SELECT dt, id, amount > 1 AS customer, _row_kind FROM source", "column=customer given=boolean wanted=string"),
        ("SELECT dt, id, '2026' AS at, _row_kind FROM source", "column=at given=string wanted=timestamp"),
    ],
)  # fmt: skip
def test_a_mistake_is_named(sql: str, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        casts(job_with(sql))


@pytest.mark.parametrize(
    "sql", ["SELECT id, _row_kind FORM source WHERE", "SELECT (", "SELECT 'a FROM source", "SELECT `", "\x1b[4mSELECT"]
)
def test_what_cannot_be_parsed_is_said_without_escapes_of_a_terminal(sql: str) -> None:
    """First steps, finding 12: the parser underlines."""
    with pytest.raises((InvalidInputError, ValueError)) as caught:
        casts(job_with(sql))
    assert "\x1b" not in str(caught.value)
    assert "sqlglot" not in str(caught.value)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM source",
        "select DT, Id, CUSTOMER, _row_kind from SOURCE",
        "SELECT s.*  FROM source AS s WHERE s.amount > 1",
        "WITH big AS (SELECT * FROM source) SELECT * FROM big",
        "SELECT * FROM (SELECT dt, id, upper(customer) AS customer, _row_kind FROM source) t",
        "SELECT dt, id, concat(customer, dt) AS c1, _row_kind, c1 AS customer FROM source" .replace("c1", "customer"),
        "SELECT dt, id, transform(split(customer, ','), e -> trim(e))[0] AS customer, _row_kind FROM source",
        "SELECT dt, id, col AS customer, _row_kind FROM source LATERAL VIEW explode(split(customer, ',')) t AS col",
        "SELECT dt, id, from_json(customer, 'a STRING').a AS customer, _row_kind FROM source",
        "SELECT dt, id, some_function(amount) AS amount, _row_kind FROM source",
        "SELECT * EXCEPT (amount) FROM source",
        "SELECT /*+ BROADCAST(x) */ dt, id, '+I' AS _row_kind FROM source GROUP BY dt, id HAVING count(*) > 1",
        "SELECT dt, id, _row_kind FROM source UNION ALL SELECT dt, id, _row_kind FROM source",
        "SELECT dt, id, o.name AS customer, _row_kind FROM source JOIN other.db.names o USING (id)",
        "SELECT dt, id, sum(amount) OVER (PARTITION BY dt ORDER BY id) AS amount, _row_kind FROM source",
        "FROM source SELECT dt, id, _row_kind",
    ],
)  # fmt: skip
def test_a_query_that_spark_runs_is_not_refused(sql: str) -> None:
    casts(job_with(sql))


def test_casts_are_shown_by_plan(tmp_path: Path) -> None:
    config = job_with(
        "SELECT dt, id, CAST(amount AS DOUBLE) AS amount, CAST(at AS TIMESTAMP) AS at, _row_kind FROM source"
    )
    assert casts(config) == ["amount double -> decimal(10, 2)", "at timestamp -> timestamp_ntz"]
    made = tmp_path / "in"
    made.mkdir()
    files = {"format": "json", "columns": COLUMNS, "options": {"path": str(made)}}
    config = job_with("SELECT dt, CAST(id AS INT) AS id FROM source", source=files, checkpoint=str(tmp_path / "c"))
    config = config.model_copy(update={"warehouse": str(tmp_path / "w")})
    [step] = [each for each in make_plan(config).steps if each.kind == "pipeline"]
    assert step.fact.endswith(", casts for shop.orders: id int -> bigint")


def test_each_step_sees_the_columns_of_the_one_before() -> None:
    renames = "SELECT dt, id, customer AS c, _row_kind FROM source"
    assert casts(job_with(renames, "SELECT dt, id, c AS customer, _row_kind FROM source")) == []
    with pytest.raises(InvalidInputError, match="no such column: column=customer"):
        casts(job_with(renames, "SELECT dt, id, customer, _row_kind FROM source"))
    casts(job_with({"python": "m:f"}, "SELECT whatever FROM made_by_f"))


def test_targets_have_steps_of_their_own() -> None:
    targets = [{"table": "shop.orders"}, {"table": "shop.lines", "transform": "SELECT dt, id, nope FROM source"}]
    with pytest.raises(InvalidInputError, match="no such column: column=nope"):
        casts(job_with("SELECT * FROM source", target=None, targets=targets))


def test_what_is_not_known_is_left_to_spark() -> None:
    grows = {"options": {**TABLE["options"], "write.merge-schema": "true"}}  # type: ignore[dict-item]
    casts(job_with("SELECT anything, dt, id FROM source", table=grows))
    casts(job_with("SELECT anything FROM source", source={"format": "rate"}))
    raw = {"options": {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}}
    with pytest.raises(InvalidInputError, match="no such column: column=vaule view=source did_you_mean=value"):
        casts(job_with("SELECT vaule FROM source", source=raw))


def test_columns_of_another_table_are_known() -> None:
    source = {"format": "fluvial", "options": {"table": "shop.lines"}}
    assert casts(job_with("SELECT * FROM source", source=source)) == []
    with pytest.raises(InvalidInputError, match="no such column: column=idd"):
        casts(job_with("SELECT dt, idd AS id, _row_kind FROM source", source=source))


def test_validate_says_all_of_it(tmp_path: Path, fluvial: Fluvial, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a file: a column, a module that is not there; secrets and variables of production need not be here."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NOT_SET", raising=False)
    text = """\
name: j
warehouse: ${NOT_SET}/w
log: {kafka.sasl.password: '${file:/run/secrets/none}'}
tables:
  a.b: {columns: {id: BIGINT}, options: {log.system: none}}
pipelines:
- {name: p, source: &files {format: json, options: {path: in}}, transform: SELECT idd AS id FROM source,
   target: a.b, checkpoint: c}
- {name: q, source: *files, transform: {python: 'no_such_module:f'}, target: a.b, checkpoint: d}
"""
    Path("job.yaml").write_text(text)
    code, _, err = fluvial("validate", "job.yaml")
    assert code == 2
    assert "no such column: column=idd view=source did_you_mean=id key=pipelines[0].transform" in err
    assert "module of a transform cannot be imported: module=no_such_module" in err
    Path("job.yaml").write_text(text.replace("idd", "id").replace("no_such_module:f", "math:floor"))
    code, out, err = fluvial("validate", "job.yaml")
    assert (code, out) == (0, "job.yaml: 1 tables, 2 pipelines: no problem found\n")
    assert "not here, not checked: ${NOT_SET}, ${file:/run/secrets/none}" in err
    assert fluvial("validate", "--online", "job.yaml")[0] == 2
    assert fluvial("plan", "job.yaml")[0] == 2


def test_a_target_that_is_not_there_has_a_suggestion(tmp_path: Path) -> None:
    files = {"format": "json", "columns": COLUMNS, "options": {"path": str(tmp_path)}}
    config = job_with(source=files, target="shop.order", checkpoint=str(tmp_path / "c"))
    Catalog(str(tmp_path / "w")).create_database("shop")
    config = config.model_copy(update={"warehouse": str(tmp_path / "w")})
    [step] = [each for each in make_plan(config).steps if each.kind == "pipeline"]
    assert (step.action.value, step.fact.endswith("did_you_mean=shop.orders")) == ("refuse", True)
