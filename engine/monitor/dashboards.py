"""The Grafana dashboard and the Prometheus alert rules, generated from the declared metrics.

Both are lists of panels and rules below. An expression takes each metric from ``METRICS``, so a name, label or unit
that is not declared cannot be written.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from engine.runtime.metrics import METRICS, Metric, MetricKind

_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_VARIABLES: Final = ("table", "query")  # of the dashboard, by the label that they choose values of
_RATE: Final = "[$__rate_interval]"
_COLUMNS: Final = 24  # of Grafana's grid
_WIDTH: Final = 8
_HEIGHT: Final = 8
_UNITS: Final = {"seconds": "s", "bytes": "bytes", "flags": "bool_yes_no"}  # Grafana's names; others are plain numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Lines of a panel: one for each value of the labels."""

    expression: str
    labels: tuple[str, ...]
    prefix: str = ""  # of the legend

    @property
    def legend(self) -> str:
        """As Grafana writes it."""
        return " ".join([*([self.prefix] if self.prefix else []), *(f"{{{{{each}}}}}" for each in self.labels)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel of time series."""

    title: str
    text: str
    unit: str  # Grafana's
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """A rule: it fires where the expression has a value for as long as it says."""

    name: str
    expression: str
    lasts: str
    severity: str  # critical: data does not arrive; warning: it will not, or some is left out
    summary: str
    description: str  # what to do


def _chosen(metric: Metric, suffix: str = "") -> str:
    """The series of a metric that the dashboard's variables choose."""
    matchers = ", ".join(f'{each}=~"${each}"' for each in _VARIABLES if each in metric.labels)
    return f"{metric.name}{suffix}{{{matchers}}}" if matchers else f"{metric.name}{suffix}"


def _by(metric: Metric, labels: Sequence[str]) -> str:
    unknown = {*labels} - {*metric.labels}
    assert not unknown, f"labels that are not declared: metric={metric.name} labels={sorted(unknown)}"
    return ", ".join(labels)


def _rate(name: str, *labels: str) -> Line:
    """What a counter gains in a second."""
    metric = METRICS[name]
    assert metric.kind is MetricKind.COUNTER
    expression = f"sum by ({_by(metric, labels)}) (rate({_chosen(metric, '_total')}{_RATE}))"
    return Line(expression=expression, labels=labels)


def _gained(name: str, *labels: str, prefix: str = "") -> Line:
    """What a counter gains between two points of a panel."""
    metric = METRICS[name]
    assert metric.kind is MetricKind.COUNTER
    expression = f"sum by ({_by(metric, labels)}) (increase({_chosen(metric, '_total')}{_RATE}))"
    return Line(expression=expression, labels=labels, prefix=prefix)


def _value(name: str, *labels: str, prefix: str = "", worst: str = "max") -> Line:
    """A gauge; of several processes the worst."""
    metric = METRICS[name]
    assert metric.kind is MetricKind.GAUGE
    return Line(expression=f"{worst} by ({_by(metric, labels)}) ({_chosen(metric)})", labels=labels, prefix=prefix)


def _slowest(name: str, *labels: str, prefix: str = "") -> Line:
    """What 95 % of the observations stay below."""
    metric = METRICS[name]
    assert metric.kind is MetricKind.HISTOGRAM
    buckets = f"sum by (le, {_by(metric, labels)}) (rate({_chosen(metric, '_bucket')}{_RATE}))"
    return Line(expression=f"histogram_quantile(0.95, {buckets})", labels=labels, prefix=prefix)


def _panel(title: str, *lines: Line, of: str, unit: str | None = None) -> Panel:
    """A panel with the help and the unit of its first metric, or with ``unit``, Grafana's."""
    metric = METRICS[of]
    return Panel(title=title, text=metric.help, unit=unit or _UNITS.get(metric.unit, "short"), lines=lines)


_ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Throughput",
        (
            _panel("Rows written per second", _rate("fluvial_rows", "table"), of="fluvial_rows"),
            _panel("Bytes written per second", _rate("fluvial_bytes", "table"), of="fluvial_bytes", unit="Bps"),
            _panel("Rows read per second", _rate("fluvial_query_input_rows", "query"), of="fluvial_query_input_rows"),
        ),
    ),
    (
        "Lag",
        (
            _panel(
                "Seconds behind the source",
                _value("fluvial_query_lag_seconds", "query"),
                _value("fluvial_cdc_lag_seconds", "table"),
                of="fluvial_query_lag_seconds",
            ),
            _panel(
                "Records behind the source",
                _value("fluvial_query_lag_records", "query"),
                _value("fluvial_cdc_lag_records", "table"),
                of="fluvial_query_lag_records",
            ),
            _panel(
                "Seconds that consumers are behind a table",
                _value("fluvial_stream_lag_seconds", "table", "stream"),
                of="fluvial_stream_lag_seconds",
            ),
            _panel("Age of the newest commit", _value("fluvial_table_commit_age_seconds", "table"),
                   of="fluvial_table_commit_age_seconds"),
            _panel("Log ahead of the table", _value("fluvial_log_lag_records", "table"), of="fluvial_log_lag_records"),
            _panel("Brokers that answer", _value("fluvial_brokers_reachable", "servers", worst="min"),
                   of="fluvial_brokers_reachable"),
        ),
    ),
    (
        "Batches",
        (
            _panel("Time of a micro-batch, 95 %", _slowest("fluvial_query_batch_seconds", "query"),
                   of="fluvial_query_batch_seconds"),
            _panel(
                "Time of flush and commit, 95 %",
                _slowest("fluvial_flush_seconds", "table", prefix="flush"),
                _slowest("fluvial_commit_seconds", "table", prefix="commit"),
                of="fluvial_flush_seconds",
            ),
            _panel(
                "Failures",
                _gained("fluvial_batch_failures", "table", prefix="batches of"),
                _gained("fluvial_query_failures", "query", prefix="query"),
                _gained("fluvial_compaction_failures", "table", prefix="compactions of"),
                of="fluvial_batch_failures",
            ),
        ),
    ),
    (
        "Parked tables and dead letters",
        (
            _panel("Parked tables", _value("fluvial_cdc_parked", "table"), of="fluvial_cdc_parked"),
            _panel(
                "Dead letters",
                _value("fluvial_dead_letters_end_offset", "topic"),
                of="fluvial_dead_letters_end_offset",
            ),
            _panel(
                "Bad records, and rows that broke a rule",
                _gained("fluvial_cdc_bad_records", "table", prefix="bad"),
                _gained("fluvial_expect_broken_rows", "table", "rule", "on_fail"),
                of="fluvial_cdc_bad_records",
            ),
        ),
    ),
    (
        "Compaction",
        (
            _panel("Compaction debt", _value("fluvial_table_compaction_debt_bytes", "table"),
                   of="fluvial_table_compaction_debt_bytes"),
            _panel("Sorted runs of the worst bucket", _value("fluvial_table_max_sorted_runs", "table"),
                   of="fluvial_table_max_sorted_runs"),
            _panel("Share of time that writers wait for compactions", _rate("fluvial_compaction_wait_seconds", "table"),
                   of="fluvial_compaction_wait_seconds", unit="percentunit"),
        ),
    ),
    (
        "Storage",
        (
            _panel("Bytes of live files", _value("fluvial_table_size_bytes", "table"), of="fluvial_table_size_bytes"),
            _panel(
                "Files",
                _value("fluvial_table_file_count", "table"),
                _value("fluvial_table_small_file_count", "table", prefix="small"),
                of="fluvial_table_file_count",
            ),
            _panel(
                "Expiry held back",
                _value("fluvial_table_expiry_overdue_seconds", "table"),
                of="fluvial_table_expiry_overdue_seconds",
            ),
        ),
    ),
)  # fmt: skip
"""The dashboard: rows with their panels."""


def _over(name: str, *labels: str, above: int) -> str:
    """A gauge above a limit."""
    metric = METRICS[name]
    assert metric.kind is MetricKind.GAUGE
    return f"max by ({_by(metric, labels)}) ({name}) > {above}"


def _is(name: str, *labels: str, flag: int) -> str:
    """A flag that is 0 or 1 in any process."""
    metric = METRICS[name]
    assert metric.unit == "flags"
    return f"{'max' if flag else 'min'} by ({_by(metric, labels)}) ({name}) == {flag}"


def _more(name: str, *labels: str, within: str) -> str:
    """A counter, or an end of a topic, that moved."""
    metric = METRICS[name]
    assert metric.kind is not MetricKind.HISTOGRAM
    gained = f"increase({name}_total[{within}])" if metric.kind is MetricKind.COUNTER else f"delta({name}[{within}])"
    return f"sum by ({_by(metric, labels)}) ({gained}) > 0"


ALERTS: Final[tuple[Alert, ...]] = (
    Alert(
        name="FluvialBrokersAway",
        expression=_is("fluvial_brokers_reachable", "servers", flag=0),
        lasts="1m",
        severity="critical",
        summary="The brokers {{ $labels.servers }} do not answer",
        description="Streams wait and continue by themselves. Look at the brokers and at the network between.",
    ),
    Alert(
        name="FluvialQueryFailed",
        expression=_more("fluvial_query_failures", "query", within="15m"),
        lasts="0m",
        severity="warning",
        summary="The query {{ $labels.query }} failed",
        description="It is started again as on-failure of the job file says; the log of the job has the reason.",
    ),
    Alert(
        name="FluvialQueryLate",
        expression=_over("fluvial_query_lag_seconds", "query", above=300),
        lasts="10m",
        severity="warning",
        summary="The query {{ $labels.query }} is {{ $value | humanizeDuration }} behind what it reads",
        description="fluvial top and fluvial trace show where its time goes.",
    ),
    Alert(
        name="FluvialCdcTableLate",
        expression=_over("fluvial_cdc_lag_seconds", "table", above=300),
        lasts="10m",
        severity="warning",
        summary="The table {{ $labels.table }} is {{ $value | humanizeDuration }} behind its source",
        description="fluvial cdc status has its lag, and whether it waits for a user.",
    ),
    Alert(
        name="FluvialConsumerLate",
        expression=_over("fluvial_stream_lag_seconds", "table", "stream", above=3600),
        lasts="15m",
        severity="warning",
        summary="{{ $labels.stream }} is {{ $value | humanizeDuration }} behind the table {{ $labels.table }}",
        description="If that reader does not come back, delete the consumer: it keeps snapshots from expiry.",
    ),
    Alert(
        name="FluvialTableParked",
        expression=_is("fluvial_cdc_parked", "table", flag=1),
        lasts="1m",
        severity="critical",
        summary="The table {{ $labels.table }} waits for a user, the others of its job continue",
        description="fluvial cdc status has the reason and the command that lets it continue.",
    ),
    Alert(
        name="FluvialDeadLetters",
        expression=_more("fluvial_dead_letters_end_offset", "topic", within="15m"),
        lasts="0m",
        severity="warning",
        summary="Dead letters came to the topic {{ $labels.topic }}",
        description="Each has its reason in the header fluvial.reason, and its place in the source.",
    ),
    Alert(
        name="FluvialBatchFailed",
        expression=_more("fluvial_batch_failures", "table", within="15m"),
        lasts="0m",
        severity="warning",
        summary="A batch of the table {{ $labels.table }} could not be committed, after all retries",
        description="A stream writes it again when its query is restarted; the log of the job has the reason.",
    ),
    Alert(
        name="FluvialCompactionFailed",
        expression=_more("fluvial_compaction_failures", "table", within="30m"),
        lasts="0m",
        severity="warning",
        summary="A compaction of the table {{ $labels.table }} failed; no row is lost",
        description="Reads become slower until one succeeds. fluvial doctor has what died, the log the reason.",
    ),
    Alert(
        name="FluvialWritersWait",
        expression=f"sum by ({_by(METRICS['fluvial_compaction_wait_seconds'], ('table',))}) "
        "(rate(fluvial_compaction_wait_seconds_total[15m])) > 0.1",
        lasts="15m",
        severity="warning",
        summary="Writers of the table {{ $labels.table }} wait for compactions {{ $value | humanizePercentage }} of "
        "their time",
        description="Give it more buckets, or compact it in a job of its own: write-only=true, and "
        "fluvial compact --watch.",
    ),
    Alert(
        name="FluvialCompactionDebt",
        expression=f"({_over('fluvial_table_compaction_debt_bytes', 'table', above=2**30)}) > "
        f"0.5 * max by ({_by(METRICS['fluvial_table_size_bytes'], ('table',))}) (fluvial_table_size_bytes)",
        lasts="1h",
        severity="warning",
        summary="Compactions of the table {{ $labels.table }} have {{ $value | humanize1024 }}B to read, more than "
        "half of it",
        description="fluvial doctor says why nothing compacts it; fluvial compact pays the debt now.",
    ),
    Alert(
        name="FluvialExpiryHeldBack",
        expression=_over("fluvial_table_expiry_overdue_seconds", "table", above=3600),
        lasts="30m",
        severity="warning",
        summary="Old snapshots of the table {{ $labels.table }} are kept {{ $value | humanizeDuration }} too long",
        description="fluvial doctor names the consumer that holds them, or the expiry that does not run.",
    ),
    Alert(
        name="FluvialTableDown",
        expression=_is("fluvial_table_up", "table", flag=0),
        lasts="5m",
        severity="critical",
        summary="The table {{ $labels.table }} cannot be measured",
        description="Its files or its store do not answer. fluvial verify has what is broken.",
    ),
)
"""The rules, in the order of their file."""


def dashboard() -> str:
    """The dashboard as JSON, for Grafana 10 or newer."""
    variables = [{"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}]
    body = {
        "title": "Fluvial",
        "uid": "fluvial",
        "tags": ["fluvial"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [*variables, *map(_variable, _VARIABLES)]},
        "annotations": {"list": []},
        "panels": list(_panels()),
    }
    return json.dumps(body, indent=1) + "\n"


def alert_rules() -> str:
    """The rules as YAML, for ``rule_files`` of Prometheus."""
    lines = ["# Written by fluvial metrics --alerts.", "groups:", "- name: fluvial", "  rules:"]
    for each in ALERTS:
        lines += [
            f"  - alert: {each.name}",
            f"    expr: {json.dumps(each.expression)}",
            f"    for: {each.lasts}",
            f"    labels: {{severity: {each.severity}}}",
            "    annotations:",
            f"      summary: {json.dumps(each.summary)}",
            f"      description: {json.dumps(each.description)}",
        ]
    return "\n".join(lines) + "\n"


def _variable(label: str) -> dict[str, Any]:
    """Values of a label; all at first."""
    query = f'label_values({{__name__=~"fluvial_.+"}}, {label})'
    return {
        "name": label,
        "label": label.capitalize(),
        "type": "query",
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


def _panels() -> Iterator[dict[str, Any]]:
    """The panels in Grafana's form, from left to right and downwards."""
    number, top = 0, 0
    for title, panels in _ROWS:
        number += 1
        place = {"x": 0, "y": top, "w": _COLUMNS, "h": 1}
        yield {"id": number, "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        top += 1
        for index, panel in enumerate(panels):
            number += 1
            down, across = divmod(index * _WIDTH, _COLUMNS)
            yield _time_series(number, panel, {"x": across, "y": top + down * _HEIGHT, "w": _WIDTH, "h": _HEIGHT})
        top += -(-len(panels) * _WIDTH // _COLUMNS) * _HEIGHT


def _time_series(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    targets = [
        {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": line.expression, "legendFormat": line.legend}
        for index, line in enumerate(panel.lines)
    ]
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "gridPos": place,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": targets,
    }
