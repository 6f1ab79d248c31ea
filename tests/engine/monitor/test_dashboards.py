"""The dashboard and the alert rules name what is declared, what is declared is measured, and Grafana can show it."""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner
from prometheus_client import CollectorRegistry

from engine import Table
from engine.cli.app import cli
from engine.deploy.shipping import SHIPPED_FILES
from engine.monitor.dashboards import ALERTS, alert_rules, dashboard
from engine.monitor.metrics_listener import QueryMetrics
from engine.monitor.table_metrics import TableCollector
from engine.runtime.metrics import METRICS, REGISTRY, Metric, MetricKind
from tests.support.tables import key_table, rows

MONITORING: Final = Path(__file__).resolve().parents[3] / "conf" / "deploy" / "monitoring"
SERIES: Final = {name: metric for metric in METRICS.values() for name in metric.series}
GAINS: Final = {
    "rate": (MetricKind.COUNTER, MetricKind.HISTOGRAM),
    "increase": (MetricKind.COUNTER,),
    "delta": (MetricKind.GAUGE,),
}
DURATION: Final = r"\d+[smhd]"
UNITS: Final = {"s", "bytes", "Bps", "short", "percentunit", "bool_yes_no"}
"""Identifiers of Grafana's units."""


@dataclass(frozen=True)
class Vector:
    """The type of an expression."""

    labels: frozenset[str]
    metric: Metric | None = None  # of a selector alone
    is_range: bool = False


class Promql:
    """A parser of the part of PromQL that rules and panels are written in; it refuses what Prometheus would."""

    TOKEN: Final = re.compile(r'\s*("[^"]*"|\[[^\]]*\]|[a-zA-Z_]\w*|\d+(?:\.\d+)?|=~|!~|!=|==|[(){},=*>])')

    def __init__(self, text: str) -> None:
        self.tokens = self.TOKEN.findall(text)
        assert "".join(self.tokens) == text.replace(" ", ""), text
        self.metrics: list[Metric] = []
        self.variables: set[str] = set()

    def parse(self) -> Vector:
        found = self.expression()
        assert not self.tokens, self.tokens
        return found

    def take(self, *expected: str) -> str:
        token: str = self.tokens.pop(0)
        assert not expected or token in expected, (token, expected, self.tokens)
        return token

    def names(self, end: str) -> Iterator[str]:
        while self.tokens[0] != end:
            yield self.take()
            if self.tokens[0] == ",":
                self.take()
        self.take(end)

    def expression(self) -> Vector:
        left = self.term()
        while self.tokens and self.tokens[0] in (">", "==", "*"):
            self.take()
            right = self.term()
            if left.labels and right.labels:
                assert left.labels == right.labels, "series that never match"
            assert [left.is_range, right.is_range] == [False, False]
            left = Vector(left.labels | right.labels)
        return left

    def term(self) -> Vector:
        word = self.take()
        if word[0].isdigit():
            return Vector(frozenset())
        if word == "(":
            found = self.expression()
            self.take(")")
            return found
        if word in ("sum", "max", "min"):
            self.take("by")
            self.take("(")
            labels = frozenset(self.names(")"))
            self.take("(")
            inner = self.expression()
            self.take(")")
            assert not inner.is_range
            assert labels <= inner.labels, f"labels that no series has: {labels - inner.labels}"
            shown_as_is = inner.metric is None or inner.metric.kind is MetricKind.GAUGE
            assert shown_as_is, "a counter is shown by what it gains"
            return Vector(labels)
        if word in GAINS:
            self.take("(")
            inner = self.expression()
            self.take(")")
            assert inner.is_range
            assert inner.metric is not None
            assert inner.metric.kind in GAINS[word]
            return Vector(inner.labels)
        if word == "histogram_quantile":
            self.take("(")
            assert 0 < float(self.take()) < 1
            self.take(",")
            inner = self.expression()
            self.take(")")
            assert "le" in inner.labels
            return Vector(inner.labels - {"le"})
        return self.selector(word)

    def selector(self, name: str) -> Vector:
        metric = SERIES[name]
        self.metrics.append(metric)
        if self.tokens and self.tokens[0] == "{":
            self.take("{")
            while True:
                label = self.take()
                assert label in metric.labels, f"{name} has no label {label}"
                self.take("=", "=~", "!=", "!~")
                self.variables |= set(re.findall(r"\$(\w+)", self.take()))
                if self.take(",", "}") == "}":
                    break
        is_range = bool(self.tokens) and self.tokens[0][0] == "["
        if is_range:
            assert re.fullmatch(rf"\[({DURATION}|\$__rate_interval)\]", self.take())
        le = {"le"} if name.endswith("_bucket") else set()
        return Vector(frozenset({*metric.labels} | le), metric=metric, is_range=is_range)


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(dashboard())["panels"]
    return found


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(alert_rules())["groups"]
    assert group["name"] == "fluvial"
    found: list[dict[str, Any]] = group["rules"]
    return found


@pytest.mark.parametrize(
    ("option", "file", "text"), [("--dashboard", "dashboard.json", dashboard), ("--alerts", "alerts.yaml", alert_rules)]
)
def test_the_files_are_what_the_command_prints_without_a_warehouse(
    option: str, file: str, text: Callable[[], str]
) -> None:
    done = CliRunner().invoke(cli, ["metrics", option])
    assert (done.exit_code, done.output) == (0, text())
    assert (MONITORING / file).read_text() == text(), (
        f"renew it: fluvial metrics {option} > conf/deploy/monitoring/{file}"
    )


def test_what_is_measured_is_declared_and_what_is_declared_is_measured() -> None:
    """Under its name, kind, help and labels; what needs a broker or a job is left to the tests of these."""
    registry = CollectorRegistry()
    QueryMetrics(registry)
    table = Table(key_table(bucket="1"))
    table.files.write(rows((1, 1)))
    table.store.consumers.write("report", 1)
    registry.register(TableCollector([table], patience_s=None))
    found = {each.name: each for source in (REGISTRY, registry) for each in source.collect()}
    assert found.keys() <= METRICS.keys()
    assert METRICS.keys() - found.keys() == {
        "fluvial_log_lag_records", "fluvial_cdc_lag_records", "fluvial_cdc_lag_seconds", "fluvial_cdc_parked",
    }  # fmt: skip
    for name, each in found.items():
        metric = METRICS[name]
        assert (each.type, each.documentation) == (metric.kind, metric.help)
        for sample in each.samples:
            assert sample.name in {*metric.series, f"{name}_created"}
            assert sample.labels.keys() - {"le"} == {*metric.labels}


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda each: each.name)
def test_a_name_says_its_unit_as_prometheus_asks(metric: Metric) -> None:
    assert re.fullmatch(r"fluvial(_[a-z]+)+", metric.name)
    assert not metric.name.endswith(("_total", "_count", "_sum", "_bucket")) or metric.kind is MetricKind.GAUGE
    for unit in ("seconds", "bytes"):
        assert (metric.unit == unit) == metric.name.endswith(f"_{unit}")
    assert metric.help.endswith(".") or ";" in metric.help
    assert all(re.fullmatch("[a-z_]+", each) for each in metric.labels)


def test_every_panel_is_one_that_grafana_shows() -> None:
    body = json.loads(dashboard())
    variables = {each["name"] for each in body["templating"]["list"]}
    assert len({each["id"] for each in panels()}) == len({each["title"] for each in panels()}) == len(panels())
    for each in panels():
        place = each["gridPos"]
        assert min(place["x"], place["y"]) >= 0 < min(place["w"], place["h"])
        assert place["x"] + place["w"] <= 24
        assert each["type"] in ("row", "timeseries")
        targets = each.get("targets", [])
        assert bool(targets) == (each["type"] == "timeseries")
        assert len({target["refId"] for target in targets}) == len(targets)
        assert len({target["legendFormat"] for target in targets} - {""}) == len(targets)
        for target in targets:
            assert target["datasource"] == each["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            parser = Promql(target["expr"])
            shown = re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
            assert {*shown} == parser.parse().labels, "lines of a panel differ by their labels"
            assert parser.variables <= variables
        if targets:
            assert each["fieldConfig"]["defaults"]["unit"] in UNITS
            assert each["description"]
    for variable in body["templating"]["list"]:
        if variable["type"] == "query":
            assert variable["name"] in {label for metric in METRICS.values() for label in metric.labels}


def test_no_panel_lies_upon_another_and_rows_have_no_gaps() -> None:
    places = [each["gridPos"] for each in panels()]
    for one, other in combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below
    assert all(0 <= after["y"] - before["y"] <= before["h"] for before, after in pairwise(places))


@pytest.mark.parametrize("rule", rules(), ids=lambda each: each["alert"])
def test_every_rule_is_one_that_prometheus_takes(rule: dict[str, Any]) -> None:
    """As ``promtool check rules``; and what its text shows of the alert is there."""
    assert rule.keys() == {"alert", "expr", "for", "labels", "annotations"}
    assert re.fullmatch(r"Fluvial[A-Za-z]+", rule["alert"])
    assert re.fullmatch(DURATION, rule["for"])
    assert rule["labels"]["severity"] in ("critical", "warning")
    parser = Promql(rule["expr"])
    labels = parser.parse().labels
    assert ">" in rule["expr"] or "==" in rule["expr"], "else it fires at once"
    assert parser.variables == set()
    text = " ".join(rule["annotations"].values())
    assert {*re.findall(r"\$labels\.(\w+)", text)} == labels
    for each in re.findall(r"\{\{(.*?)\}\}", text):
        assert re.fullmatch(r" (\$labels\.\w+|\$value \| (humanizeDuration|humanizePercentage|humanize1024)) ", each)


def test_every_trouble_has_a_rule_and_a_panel() -> None:
    assert len({each["alert"] for each in rules()}) == len(rules()) == len(ALERTS)
    warned = {metric.name for each in rules() for metric in metrics_of(each["expr"])}
    shown = {
        metric.name for each in panels() for target in each.get("targets", ()) for metric in metrics_of(target["expr"])
    }
    assert warned >= {
        "fluvial_query_lag_seconds", "fluvial_cdc_lag_seconds", "fluvial_stream_lag_seconds",
        "fluvial_table_compaction_debt_bytes", "fluvial_batch_failures", "fluvial_query_failures",
        "fluvial_cdc_parked", "fluvial_dead_letters_end_offset", "fluvial_table_expiry_overdue_seconds",
        "fluvial_brokers_reachable",
    }  # fmt: skip
    assert shown >= {*warned} - {"fluvial_table_up"}, "the curve behind each warning"


def metrics_of(expression: str) -> list[Metric]:
    parser = Promql(expression)
    parser.parse()
    return parser.metrics


@pytest.mark.parametrize(
    "wrong",
    [
        "max by (table) (fluvial_query_lag_seconds)",
        "max by (query) (fluvial_query_lag)",
        'max by (query) (fluvial_query_lag_seconds{table=~"$table"})',
        "sum by (table) (fluvial_rows_total)",
        "sum by (table) (rate(fluvial_rows_total))",
        "sum by (table) (rate(fluvial_table_size_bytes[5m]))",
        "max by (query) (fluvial_query_lag_seconds) > 0.5 * max by (table) (fluvial_table_size_bytes)",
        "max by (query) (fluvial_query_lag_seconds",
        "histogram_quantile(0.95, sum by (table) (rate(fluvial_commit_seconds_bucket[5m])))",
    ],
)
def test_a_wrong_expression_is_found(wrong: str) -> None:
    with pytest.raises((AssertionError, KeyError, IndexError)):
        Promql(wrong).parse()


def test_what_runs_prometheus_and_grafana_names_files_that_are_there() -> None:
    """The same eight files, by Compose and by Kubernetes; each config map is one of the kustomization's."""
    shipped = {Path(each).name for each in SHIPPED_FILES["monitoring"]}
    assert shipped == {each.name for each in MONITORING.iterdir()}

    def of(name: str) -> Any:
        return yaml.safe_load((MONITORING / name).read_text())

    mounts = [each.split(":") for service in of("compose.yaml")["services"].values() for each in service["volumes"]]
    composed = {target: Path(source).name for source, target, *_ in mounts if source.startswith("./")}
    assert {*composed.values()} == shipped - {"compose.yaml", "monitoring.yaml", "kustomization.yaml"}
    assert [composed[each] for each in of("prometheus.yaml")["rule_files"]] == ["alerts.yaml"]
    (provider,) = of("grafana-dashboards.yaml")["providers"]
    assert composed[f"{provider['options']['path']}/fluvial.json"] == "dashboard.json"

    kustomization = of("kustomization.yaml")
    assert kustomization["resources"] == ["monitoring.yaml"]
    maps = {
        each["name"]: {file.partition("=")[0]: file.rpartition("=")[2] for file in each["files"]}
        for each in kustomization["configMapGenerator"]
    }
    documents = [*yaml.safe_load_all((MONITORING / "monitoring.yaml").read_text())]
    mounted: dict[str, str] = {}
    for pod in (each["spec"]["template"]["spec"] for each in documents if each["kind"] == "Deployment"):
        sources = {each["name"]: each["configMap"]["name"] for each in pod["volumes"] if "configMap" in each}
        for mount in pod["containers"][0]["volumeMounts"]:
            for key, file in maps.get(sources.get(mount["name"], ""), {}).items():
                mounted[f"{mount['mountPath']}/{key}"] = file
    assert mounted == composed
    images = {each["image"] for each in of("compose.yaml")["services"].values()}
    assert images == {
        each["spec"]["template"]["spec"]["containers"][0]["image"] for each in documents if each["kind"] == "Deployment"
    }


def test_the_page_names_each_rule_and_no_other() -> None:
    page = (MONITORING.parents[2] / "docs" / "system-tables.md").read_text()
    assert sorted(re.findall(r"`(Fluvial[A-Z][A-Za-z]+)`", page)) == sorted(each.name for each in ALERTS)
