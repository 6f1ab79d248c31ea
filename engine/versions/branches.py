"""Branches with their logs: a branch gets a topic of its own when it is made, and loses it when it is deleted.

What a branch consists of beside its log is ``filestore.branch.branches``; how its log is found is
``filestore.layout.branch_log``.
"""

import uuid
from collections.abc import Callable, Mapping
from typing import Self

from engine.log.table_log import TableLog, default_topic
from engine.log.table_topic import NewLog, make_topic, remove_topic
from engine.request.writer_options import EVEN_UNTRACKED
from filestore.branch import branches, main_replacement
from filestore.branch.branches import Branch, DeletedBranch
from filestore.branch.former_main import MainReplaced
from filestore.layout.branch_log import read_branch_log
from filestore.layout.paths import MAIN_BRANCH
from filestore.options.log_place import TOPIC_KEY
from filestore.options.table_options import canonical_options
from filestore.refs.live_references import branch_names, on_branch
from filestore.table import FileTable
from filestore.table_store import TableStore
from filestore.table_view import TableView
from lsm.errors import ConflictError, InvalidInputError


def create_branch(
    store: TableStore,
    name: str,
    *,
    tag: str | None = None,
    snapshot_id: int | None = None,
    options: Mapping[str, str] | None = None,
    log: bool = False,
    ignore_if_exists: bool = False,
) -> Branch:
    """``filestore.branch.branches.create_branch``, and with ``log`` a topic for the changes of the branch.

    The option ``log.kafka.topic`` names the topic, by default ``<main's topic>.<name>``, or another new one where that
    name is in use. See ``make_topic``.

    Raises:
        InvalidInputError: as there; or a log for a branch of a table without one, or a topic in use. Nothing was made.
        ConflictError: as there.
        UnavailableError: the brokers do not answer. Nothing was made.
    """
    others = canonical_options(options or {})
    wanted_topic = others.pop(TOPIC_KEY, None)
    if wanted_topic is not None and not log:
        raise InvalidInputError(f"a topic for a branch without a log: {TOPIC_KEY}={wanted_topic} fix=log=true")
    with _BranchTopic(store, name, wanted_topic) as topic:
        return branches.create_branch(
            store,
            name,
            tag=tag,
            snapshot_id=snapshot_id,
            options=others,
            log=topic.create if log else None,
            ignore_if_exists=ignore_if_exists,
        )


def delete_branch(store: TableStore, name: str, *, dry_run: bool = False) -> DeletedBranch:
    """Remove a branch, the files that nothing else uses, and its topic.

    When this dies, run it again; a topic that is left then has no readers.

    Raises:
        UnavailableError: the brokers do not answer. Nothing was deleted.
        InvalidInputError: see ``filestore.branch.branches.delete_branch``, as ConflictError and CorruptDataError.
    """
    log = None if dry_run else _log_of(store, name)
    topics = None if log is None else log.reached_topics()
    deleted = branches.delete_branch(store, name, dry_run=dry_run)
    if log is not None and topics is not None:
        remove_topic(topics, log)
    return deleted


def replace_main(store: TableStore, name: str, *, force: bool = False, dry_run: bool = False) -> MainReplaced:
    """Make a branch the main one, drop the old main, and its topic.

    Readers and writers of the branch continue. When this dies, run it again; a topic that is left belongs to no table.
    A dry run changes nothing.

    Raises:
        UnavailableError: main has a log, and the brokers do not answer. Nothing was done.
        InvalidInputError: see ``filestore.branch.main_replacement.replace_main``, as ConflictError.
    """
    old = TableLog.of(FileTable(store).on_branch(MAIN_BRANCH), EVEN_UNTRACKED)
    topics = None if old is None else old.reached_topics()
    done = main_replacement.replace_main(store, name, force=force, dry_run=dry_run)
    if dry_run:
        return done
    now = FileTable(store).on_branch(MAIN_BRANCH)
    if old is not None and topics is not None and all(each.topic != old.topic for each in logs_of(now.store)):
        remove_topic(topics, old)
    return done


def logs_of(store: TableStore, *, but: str | None = None) -> list[TableLog]:
    """The logs of a table: main's, and those of its branches, also of ones that are just being made or deleted.

    Args:
        store: on its main branch.
        but: a branch that is left out.
    """
    mains = TableLog.of(TableView(store), EVEN_UNTRACKED)
    others = [_log_of(store, each) for each in branch_names(store) if each != but]
    return list({log.topic: log for log in (mains, *others) if log is not None}.values())


class _BranchTopic:
    """The topic of a branch in creation; deleted on exit by an error that says that there is no branch."""

    def __init__(self, store: TableStore, branch: str, wanted: str | None) -> None:
        self._store = store
        self._branch = branch
        self._wanted = wanted
        self._undo: Callable[[], object] = lambda: None

    def create(self) -> Mapping[str, str]:
        """Make the topic and return the options of the log. Raises: InvalidInputError, UnavailableError."""
        store, branch = self._store, self._branch
        mains = TableLog.of(TableView(store), EVEN_UNTRACKED)
        if mains is None:
            raise InvalidInputError(
                f"a branch can have a log if its table has one: table={store.name} branch={branch} log=true "
                "fix=leave it out"
            )
        if any(each.topic == self._wanted for each in logs_of(store, but=branch)):
            raise InvalidInputError(f"the topic is that of another branch: table={store.name} topic={self._wanted}")
        topic = make_topic(
            mains.properties,
            table_id=str(uuid.uuid4()),
            default_name=default_topic(f"{mains.topic}.{branch}"),
            wanted_name=self._wanted,
            bucket_count=mains.bucket_count,
            replication=store.options.log_replication,
            retention_ms=store.options.log_retention_ms,
            sets_retention=False,
            log_format=store.options.log_format,
        )
        made = NewLog.keyed(topic, mains.properties, store.io, store.paths.root)
        self._undo = made.undo
        return made.options

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and issubclass(kind, InvalidInputError | ConflictError):
            self._undo()


def _log_of(store: TableStore, name: str) -> TableLog | None:
    """The own log of a branch, whatever else is there of the branch."""
    place = read_branch_log(store.io, store.paths.with_branch(name))
    if place is None:
        return None
    schema = on_branch(store, name).schemas.latest() or store.schema
    return TableLog.of(TableView(store.with_found_options({**schema.options, **place})), EVEN_UNTRACKED)
