"""Whether the topic of a table is still the table's log."""

from dataclasses import dataclass

from engine.log.log_faults import log_faults
from engine.monitor.symptom import Severity, Symptom
from engine.table import Table
from lsm.errors import InvalidInputError, UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the doctor found it."""

    name: str
    problems: tuple[str, ...] = ()  # for which writers are refused
    unseen: str | None = None  # why it could not be looked at


def topic_state(table: Table) -> TopicState | None:
    """Look at a table's topic; None when the table has no log."""
    log = table.log
    if log is None:
        return None
    try:
        faults = list(log_faults(table.store, log))
    except (UnavailableError, InvalidInputError) as error:
        return TopicState(name=log.topic, unseen=str(error))
    return TopicState(name=log.topic, problems=tuple(each.problem for each in faults if each.refuses_writers))


def topic_symptom(topic: TopicState | None, *, brokers_answer: bool) -> Symptom:
    """The result of the check.

    Args:
        topic: see ``topic_state``.
        brokers_answer: False: another check says so.
    """
    if topic is None:
        return Symptom(check="topic", severity=Severity.OK, fact="the table has no log")
    values = {"topic": topic.name, "problems": list(topic.problems)}
    if topic.unseen is not None:
        severity = Severity.NOTE if brokers_answer else Severity.OK
        fix = "allow this user to read the topic (docs/kafka-security.md)" if brokers_answer else None
        fact = f"{topic.name} cannot be looked at: {topic.unseen}"
        return Symptom(check="topic", severity=severity, fact=fact, fix=fix, values=values)
    if not topic.problems:
        fact = f"{topic.name} is the table's, up to the last record of each bucket"
        return Symptom(check="topic", severity=Severity.OK, fact=fact, values=values)
    fact = f"writers are refused: {topic.problems[0]}"
    fix = "look at all of them with CALL sys.verify; the files of the table are whole, and can be read and copied"
    return Symptom(check="topic", severity=Severity.CRITICAL, fact=fact, fix=fix, values=values)
