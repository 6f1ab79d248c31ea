"""Whether the topic of a table is still the table's log, and what of the table's options is not its files' to say."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from engine.log.log_faults import log_faults
from engine.log.table_log import ignored_options
from engine.monitor.symptom import Severity, Symptom
from engine.runtime.units import many_text
from engine.table import Table
from engine.write.log_sync import wants_changes
from filestore.changelog.log_gap import LogGap, log_gap
from filestore.evolution.stored_login import StoredLogin
from filestore.layout.file_names import EXTERNAL_OPTIONS
from filestore.options.log_login import is_openers
from filestore.options.secrets import secrets_of_log
from filestore.table_store import TableStore
from lsm.errors import InvalidInputError, UnavailableError


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the doctor found it."""

    name: str
    problems: tuple[str, ...] = ()  # for which writers are refused
    unseen: str | None = None  # why it could not be looked at
    is_signed: bool = True  # the log has a key
    left: LogGap | None = None  # commits whose changes it lacks
    wants_changes: bool = False  # log.overwrite=changes


def unreached_brokers(table: Table) -> str | None:
    """Why the brokers of a table's log cannot be reached; None: they answer, or there is no log.

    Asked first and once: each request to brokers that are not there waits for them.
    """
    try:
        if table.log is not None:
            table.log.reached_topics()
    except UnavailableError as error:
        return str(error)
    except InvalidInputError:
        return None  # they answer, and refuse the user: what is looked at next says it
    return None


def topic_state(table: Table, unreached: str | None) -> TopicState | None:
    """Look at a table's topic, if its brokers can be reached; None when the table has no log."""
    log = table.log
    if log is None:
        return None
    found = TopicState(
        name=log.topic,
        is_signed=log.key is not None,
        left=log_gap(table.store, table.latest_snapshot()),
        wants_changes=wants_changes(table.store),
    )
    if unreached is not None:
        return replace(found, unseen=unreached)
    try:
        faults = list(log_faults(table.store, log))
    except (UnavailableError, InvalidInputError) as error:
        return replace(found, unseen=str(error))
    return replace(found, problems=tuple(each.problem for each in faults if each.refuses_writers))


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
    if not topic.problems and topic.left is not None:
        return _left(topic.left, values, wants_changes=topic.wants_changes)
    if not topic.problems and not topic.is_signed:
        fact = f"who may write to {topic.name} could name files that the next writer makes part of the table"
        fix = "run sign-log, once all writers have this version"
        return Symptom(check="topic", severity=Severity.NOTE, fact=fact, fix=fix, values=values)
    if not topic.problems:
        fact = f"{topic.name} is the table's, up to the last record of each bucket"
        return Symptom(check="topic", severity=Severity.OK, fact=fact, values=values)
    fact = f"writers are refused: {topic.problems[0]}"
    fix = "look at all of them with CALL sys.verify; the files of the table are whole, and can be read and copied"
    return Symptom(check="topic", severity=Severity.CRITICAL, fact=fact, fix=fix, values=values)


def _left(left: LogGap, values: Mapping[str, Any], *, wants_changes: bool) -> Symptom:
    """The table has changed without its log; streams read that from files."""
    fact = f"the topic left the table at snapshot {left.newest_id}: consumers of the topic alone lack its changes"
    if wants_changes:
        fix = "CALL sys.sync_log; if the topic still lacks them, they are no longer known: CALL sys.reset_log"
    else:
        fix = "where such consumers exist, set log.overwrite=changes and CALL sys.sync_log"
    severity = Severity.WARNING if wants_changes else Severity.NOTE
    return Symptom(
        check="topic", severity=severity, fact=fact, fix=fix, values={**values, "left_at_snapshot": left.newest_id}
    )


def places_not_read(store: TableStore) -> dict[str, str]:
    """The options that name places outside of the table which are not read, and why."""
    return {key: why for key, why in ignored_options(store).items() if key in EXTERNAL_OPTIONS}


def login_symptom(logins: Sequence[StoredLogin], outside: Mapping[str, str]) -> Symptom:
    """The result of the check.

    Args:
        logins: files of the table that hold what they should not.
        outside: see ``places_not_read``.
    """
    keys = sorted({key for each in logins for key in each.options})
    values = {"files": len(logins), "options": ", ".join(keys)}
    if not keys and outside:
        (key, why), *_ = outside.items()
        fact = f"places outside of the table that its files name are not read: {key} is {why}"
        fix = "give external-paths.allowed to the catalog if you trust the table"
        return Symptom(check="login", severity=Severity.WARNING, fact=fact, fix=fix, values=values)
    if not keys:
        return Symptom(check="login", severity=Severity.OK, fact="no file of the table holds a login", values=values)
    files = many_text(len(logins), "file")
    if all(map(is_openers, keys)) and not secrets_of_log(dict.fromkeys(keys, "")):
        fact = f"options that only who opens the table may give have no effect: {', '.join(keys)} in {files}"
        fix = "give them to the catalog if they are yours, and run remove-stored-login"
        return Symptom(check="login", severity=Severity.WARNING, fact=fact, fix=fix, values=values)
    fact = f"who may read the table's files sees a login, which has no effect: {', '.join(keys)} in {files}"
    fix = "give it to the catalog, run remove-stored-login, and change the password at the brokers"
    return Symptom(check="login", severity=Severity.WARNING, fact=fact, fix=fix, values=values)
