"""A job file for a topic that exists: columns and key from some of its records, in JSON.

Types are those of the values: a text stays a text, even if it looks like a time. Where values disagree the column is a
STRING, which the file says in a comment.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from string import Template
from typing import Any, Final

from lsm.errors import InvalidInputError

_STRING: Final = "STRING"
_ENVELOPE: Final = frozenset({"before", "after", "op"})
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_JOB: Final = Template("""\
# yaml-language-server: $$schema=fluvial.schema.json
# From $count records of the topic $topic: look at types and key, then fluvial plan.
name: $name

warehouse: $${WAREHOUSE:-.fluvial/warehouse}

log:
  kafka.bootstrap.servers: $${KAFKA:-$brokers}

tables:
  $table:
    columns:
$columns
$key    options: {bucket: 1}

pipelines:
- name: $name
  source:
    options: {subscribe: $subscribe, value.format: $format}
  target: $table
  trigger: available-now
  checkpoint: $${CHECKPOINTS:-.fluvial/checkpoints}/$name
""")

TopicRecord = tuple[bytes | None, bytes | None]
"""Key and value."""


@dataclass(slots=True)
class _Shape:
    """The types and facts seen in one value of the sampled records."""

    types: set[str] = field(default_factory=set)
    fields: dict[str, "_Shape"] = field(default_factory=dict)
    element: "_Shape | None" = None

    def see(self, value: Any) -> None:
        match value:
            case None:
                return
            case bool():
                self.types.add("BOOLEAN")
            case int():
                self.types.add("BIGINT" if -(2**63) <= value < 2**63 else _STRING)
            case float():
                self.types.add("DOUBLE")
            case dict():
                self.types.add("ROW")
                for name, each in value.items():
                    self.fields.setdefault(name, _Shape()).see(each)
            case list():
                self.types.add("ARRAY")
                self.element = self.element or _Shape()
                for each in value:
                    self.element.see(each)
            case _:
                self.types.add(_STRING)

    @property
    def is_mixed(self) -> bool:
        return len(self.types) > 1 and self.types != {"BIGINT", "DOUBLE"}

    @property
    def type(self) -> str:
        if self.types == {"BIGINT", "DOUBLE"}:
            return "DOUBLE"
        [only] = self.types if len(self.types) == 1 else [_STRING]
        if only == "ROW" and self.fields:
            return f"ROW<{', '.join(f'{_quoted(name)} {each.type}' for name, each in self.fields.items())}>"
        if only == "ARRAY":
            return f"ARRAY<{_STRING if self.element is None else self.element.type}>"
        return _STRING if only == "ROW" else only


def topic_job(topic: str, records: Iterable[TopicRecord], *, brokers: str, table: str | None = None) -> str:
    """The text of a job file.

    Args:
        topic: to read.
        records: some of it; those without a value are deletes.
        brokers: for the file.
        table: as database.table; None: one with the name of the topic.

    Raises:
        InvalidInputError: no record has a JSON object as its value.
    """
    columns, keys, count, is_envelope = _Shape(), [], 0, False
    for key, value in records:
        found = _object(value)
        if found is None:
            continue
        count += 1
        found = found.get("payload", found) if "schema" in found and "payload" in found else found
        if isinstance(found, dict) and found.keys() >= _ENVELOPE:
            is_envelope = True
            columns.see(found["before"])
            columns.see(found["after"])
        else:
            columns.see(found)
        keys.append(_key(key))
    if not columns.fields:
        raise InvalidInputError(
            f"no record has a JSON object as its value: topic={topic} records={count} "
            "fix='write the job file by hand, see conf/orders.yaml'"
        )
    name = table or f"default.{re.sub(r'[^A-Za-z0-9_]+', '_', topic).strip('_')}"
    found_key, why_not = _primary_key(keys, columns.fields)
    return _text(topic, name, columns.fields, found_key, why_not, count, brokers, is_envelope)


def _text(
    topic: str,
    table: str,
    columns: Mapping[str, _Shape],
    key: Sequence[str],
    why_no_key: str,
    count: int,
    brokers: str,
    is_envelope: bool,
) -> str:
    lines = [
        f"      {_quoted_yaml(name)}: {_quoted_yaml(shape.type)}"
        + ("  # of several types" if shape.is_mixed else "" if shape.types else "  # always null")
        for name, shape in columns.items()
    ]
    return _JOB.substitute(
        count=count,
        topic=topic,
        name=table.partition(".")[2].replace("_", "-"),
        brokers=brokers,
        table=table,
        columns="\n".join(lines),
        key=f"    primary_key: [{', '.join(map(_quoted_yaml, key))}]\n"
        if key
        else f"    # no primary_key, so updates would be more rows: {why_no_key}\n",
        subscribe=_quoted_yaml(topic),
        format="debezium-json" if is_envelope else "json",
    )


def _primary_key(keys: Sequence[Mapping[str, Any] | None], columns: Mapping[str, _Shape]) -> tuple[list[str], str]:
    """The members of the records' keys, if all records have the same ones, and they are columns; else [] and why."""
    names = {tuple(each) for each in keys if each is not None}
    missing = sum(each is None for each in keys)
    if missing:
        return [], f"{missing} of {len(keys)} records have no JSON object as their key"
    if len(names) > 1:
        return [], "keys of the records have different members"
    [only] = names
    unknown = sorted(set(only) - columns.keys())
    return ([], f"members of the keys are no columns, {', '.join(unknown)}") if unknown else ([*only], "")


def _key(key: bytes | None) -> Mapping[str, Any] | None:
    found = _object(key)
    if found is not None and isinstance(found.get("payload"), dict) and "schema" in found:
        found = found["payload"]
    return found or None


def _object(text: bytes | None) -> dict[str, Any] | None:
    try:
        found = None if text is None else json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _quoted(name: str) -> str:
    return name if _PLAIN.fullmatch(name) else f"`{name.replace('`', '``')}`"


def _quoted_yaml(text: str) -> str:
    """A text of YAML; all but plain words in quotes."""
    return text if _PLAIN.fullmatch(text) and text.lower() not in _WORDS else json.dumps(text, ensure_ascii=False)


_WORDS: Final = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Plain words that YAML takes for other values."""
