"""The commands, by name and by group, without importing any of them.

Each has a line of help here, so that ``fluvial --help`` need not ask them; a test compares both. An action of the form
``create-tag`` is also ``fluvial tag create``.
"""

from collections.abc import Collection, Mapping
from typing import Final

LISTING_TABLES: Final[Mapping[str, str]] = {
    "branch": "branches",
    "consumer": "consumers",
    "files": "files",
    "partition": "partitions",
    "savepoint": "savepoints",
    "snapshot": "snapshots",
    "tag": "tags",
}
"""The system table that lists what a group is about."""

_LISTING: Final = ("list", "ls", "show")

_VERBS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("drop", "rm", "remove", "del"), "delete"),
    **dict.fromkeys(("add", "new", "make"), "create"),
    **dict.fromkeys(("mv", "move"), "rename"),
}
"""Verbs of other programs, by those of the actions here."""

WORDS_ELSEWHERE: Final[Mapping[str, str]] = {
    "create-table": "fluvial create db.t 'id BIGINT PRIMARY KEY NOT ENFORCED'",
    **dict.fromkeys(("drop-table", "rm"), "fluvial drop db.t"),
    **dict.fromkeys(("rename-table", "mv"), "fluvial rename db.a db.b"),
    **dict.fromkeys(("alter", "alter-table"), "fluvial sql 'ALTER TABLE db.t ADD COLUMN c INT'"),
    **dict.fromkeys(("list", "tables", "list-tables", "show-tables", "databases"), "fluvial ls"),
    **dict.fromkeys(("insert", "write", "merge", "update"), "fluvial sql 'INSERT INTO db.t VALUES (1)'"),
    **dict.fromkeys(("select", "query", "show"), "fluvial sql 'SELECT ...', or fluvial read db.t"),
    **dict.fromkeys(("optimize", "bin-pack"), "fluvial compact db.t"),
    "zorder": "fluvial cluster db.t",
    "vacuum": "fluvial expire-snapshots db.t, then fluvial remove-orphan-files",
    "restore": "fluvial rollback-to-as-latest db.t",
    "history": "fluvial read 'db.t$snapshots'",
    "list-topics": "fluvial topics",
    "create-topic": "fluvial broker create-topic, or the tools of Kafka; a table makes its own topic",
    **{f"{verb}-{each}": f"fluvial read 'db.t${each}'" for verb in _LISTING for each in LISTING_TABLES.values()},
}
"""Words of other programs, and of SQL, by what they are called here."""


def called_here(word: str, group: str | None) -> str | None:
    """The command that does what a word of another program means; None: none is known.

    Args:
        word: that was typed as a command.
        group: whose action it would be; None: a command.
    """
    if group is None:
        return WORDS_ELSEWHERE.get(word.replace("_", "-"))
    return f"fluvial read 'db.t${LISTING_TABLES[group]}'" if word in _LISTING and group in LISTING_TABLES else None


def same_by_meaning(word: str, known: Collection[str]) -> str | None:
    """The known command that a word means: ``drop-tag`` and ``tag-drop`` are ``delete-tag``; None: no such one."""
    spelt = word.replace("_", "-")
    orders = (spelt.split("-", 1), [*reversed(spelt.rsplit("-", 1))])
    found = ["-".join([same, *things]) for verb, *things in orders for same in (verb, _VERBS.get(verb, verb))]
    return next((each for each in found if each in known), None)


_HOMES: Final = {
    "cdc": "engine.cli.cdc",
    "shell": "engine.cli.commands.sql",
    **dict.fromkeys(("describe", "ls", "read"), "engine.cli.reading"),
    **dict.fromkeys(("init", "package", "spark-conf"), "engine.cli.job_commands.init"),
    **dict.fromkeys(("create", "drop", "rename", "topics"), "engine.cli.commands.tables"),
    **dict.fromkeys(("plan", "run", "validate"), "engine.cli.commands.deploy"),
    **{name: f"engine.cli.job_commands.{name}" for name in ("recover", "trace")},
}
"""Modules of commands that have none of their name in ``engine.cli.commands``."""


_HELP: Final = {
    "broker": "A real Kafka broker on this machine, for demos.",
    "cdc": "Keep all tables of a database equal, from topics of its changes.",
    "config": "Show the options of the catalog, and of a table or of new tables, with the origin of each value.",
    "create": "Create a table, with columns as in SQL.",
    "describe": "Show columns, keys and options of a table (named database.table), newest or as of a version.",
    "diff": "Show what differs between two states of a table: rows, or counts.",
    "doctor": "Explain what costs a table time, space or safety, with the option or command to change it.",
    "drop": "Delete a table and the topic that it made.",
    "init": "Create a directory with a working job file, and a script that sends it changes.",
    "inspect": "Show snapshots, and the sorted runs, key ranges and bytes of each bucket, newest or as of a version.",
    "lag": "Show the lag of streams behind a table, and of it behind its log.",
    "lineage": "Show the tables and jobs upstream and downstream of a table; without one, all of the catalog.",
    "ls": "List the tables of a database, or of all.",
    "metrics": "Print one scrape of tables as Prometheus text, from files.",
    "package": "Write what spark-submit needs on a cluster without Fluvial: an archive, and the script to submit.",
    "plan": "Show what a run of a job file would create, start and resume.",
    "read": "Print rows of a table, newest or as of a version, or of a system table ('db.t$files', sys.tables).",
    "recover": (
        "Correct a table after a snapshot, and compute everything downstream again by the pipelines of job files."
    ),
    "rename": "Give a table another name.",
    "run": "Run the pipelines of a job file until they finish.",
    "serve": "Serve tables to JDBC and ODBC clients by Spark's Thrift server.",
    "shell": "Run SQL statements at a prompt, which has a history and completes names.",
    "simulate": "Interleave, crash and fail real operations on small tables, and check what is left.",
    "spark-conf": "Print the Spark settings of Fluvial's sessions, for sessions created elsewhere.",
    "sql": "Run SQL statements on the tables of a warehouse.",
    "tail": "Print the changes of a table, with their kinds: a snapshot, then the log or files, each change once.",
    "top": "Watch tables: rates, lag, sorted runs, debt, newest snapshots.",
    "topics": "List the topics of brokers and their tables.",
    "trace": "Show where the time of one micro-batch went, by the steps in a sink's trace.directory.",
    "ui": "Show a warehouse in the browser, live: tables, rows, lineage, jobs.",
    "validate": "Check job files without running them.",
}

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    name: (_HOMES.get(name, f"engine.cli.commands.{name}"), text) for name, text in _HELP.items()
}
"""Commands that are imported when they are called: module and short help."""

ACTIONS: Final[Mapping[str, str]] = {
    "adopt-copy": (
        "Let a table that was moved or restored to another path continue with its log: the original was deleted."
    ),
    "analyze": "Count rows and describe columns, for planners.",
    "audit-publish": "Bring a branch into main by one commit, if its rows are as expected.",
    "clear-consumers": "Delete named readers, so that they protect no snapshots.",
    "cluster": "Put the rows of an append table in an order for filters.",
    "compact": (
        "Merge the sorted runs of a table's buckets, where it pays or everywhere; the most expensive to read first."
    ),
    "compact-database": (
        "Merge the sorted runs of many tables, one after another; a failing table does not stop the others."
    ),
    "compact-manifest": (
        "Merge the manifests of a table into as few as possible, so that planning a read opens fewer files."
    ),
    "copy": "Create a table with the columns, keys, options and newest rows of another; its log, if any, is new.",
    "create-branch": "Make a branch: the same table with snapshots, schemas and tags of its own. No row is copied.",
    "create-consistent-tag": "Create the same tag in several tables, at snapshots that belong to the same micro-batch.",
    "create-savepoint": "Compact a table, and keep the state of then until the savepoint is deleted.",
    "create-tag": "Give a snapshot a name, which keeps it until the tag is deleted.",
    "create-tag-from-timestamp": "Give a name to the snapshot that readers saw at a time.",
    "delete-branch": "Delete branches, the files that only they used, and their logs.",
    "delete-data-lineage": "Delete which snapshots a job read and wrote, and where it started.",
    "delete-savepoint": "Delete a savepoint, its tag, and the files that only it used.",
    "delete-table-lineage": "Delete which tables a job reads and writes, for a job that has ended permanently.",
    "delete-tag": "Delete tags, and the files that only they used.",
    "drop-partition": "Delete all rows of partitions, in one commit; older snapshots and tags keep them.",
    "expire-changelogs": (
        "Delete old changelogs, which outlive snapshots that Paimon for Java expired, or a caller before the "
        "options say."
    ),
    "expire-partitions": "Drop partitions that are too old.",
    "expire-snapshots": (
        "Delete old snapshots, and the files that neither a snapshot nor a tag, branch or consumer needs."
    ),
    "expire-tags": "Delete the tags that have outlived their retention.",
    "export": "Copy a state of a table as Delta Lake, Iceberg or Parquet.",
    "fast-forward": (
        "Make a branch's snapshots, tags and schemas main's too, under the same numbers; no file is copied."
    ),
    "impact": (
        "List what contains a snapshot: the jobs that read it, directly or through others, and what they wrote from it."
    ),
    "mark-partition-done": "Write a _SUCCESS file into partitions, for jobs that wait for it.",
    "merge-branch": "Bring what a branch did into main by one commit, key by key; the branch stays.",
    "migrate-table": (
        "Create a table from a directory of Parquet files, as written by Hive and Spark; the directory is unchanged."
    ),
    "purge-files": (
        "Empty a table permanently: no rows, consumers, tags or changelogs, one empty snapshot; schema and log are"
        " kept."
    ),
    "recovery-plan": "List the steps to correct a table after a snapshot, and to recompute everything downstream.",
    "remove-orphan-files": "Delete files that no snapshot, tag or branch refers to: leftovers of dead writers.",
    "remove-unexisting-files": (
        "Remove lost data files from a table, so that the rest can be read; their rows are lost."
    ),
    "remove-unexisting-manifests": "Remove lost manifests from a table, so that the rest can be read.",
    "rename-branch": "Give a branch another name. Its readers and writers have to open it again.",
    "remove-stored-login": (
        "Take secrets of logins out of a table's files, where earlier versions or other writers stored them."
    ),
    "rename-tag": "Give a tag another name.",
    "repair": "Repair the history of a branch: hints, forks, and a rollback whose process died.",
    "repair-earliest-snapshot": (
        "Set the oldest snapshot when its hint is wrong; older ones are deleted by the next expiry."
    ),
    "repair-lineage": (
        "Rebuild the lineage of a table's snapshots in the store from the snapshot files; with --all, of all tables."
    ),
    "replace-main-branch": (
        "Make a branch the main one; the old main and its log go. Jobs on the branch continue; those on the old "
        "main fail."
    ),
    "replace-tag": "Give the name of a tag to another snapshot, and delete the files that only the old one used.",
    "rescale": "Rewrite all rows with another number of buckets, which becomes the table's.",
    "reset-consumer": "Move a named reader to another snapshot, or delete it. The reader must not be running.",
    "reset-log": (
        "Give a table a new empty topic: its topic was deleted or created again, lacks partitions, or has foreign rows."
    ),
    "restore-checkpoint": (
        "Make the checkpoint directory from which a streaming query continues after what a savepoint contains."
    ),
    "rewind-checkpoint": (
        "Make the checkpoint directory from which a streaming query continues after what a tag of its table contains."
    ),
    "rewrite-file-index": "Add missing indexes to data files, according to the table's options; no data is rewritten.",
    "rollback": (
        "Reset a table to an older state; later snapshots and tags, and files only they use, are deleted permanently."
    ),
    "rollback-to-as-latest": "Restore the rows of an older state by a new commit; the history is kept.",
    "rollback-to-cut": (
        "Make the rows of all tables of a cut what they were then, each by a new commit; nothing of the history is"
        " lost."
    ),
    "rollback-to-savepoint": (
        "Make the rows of a savepoint those of the newest snapshot, by a new commit; nothing of the history is lost."
    ),
    "rollback-to-timestamp": "Take a table back to the state of a time, as rollback does.",
    "rollback-to-watermark": (
        "Take a table back to the last snapshot that is not further than a watermark, as rollback does."
    ),
    "sign-log": (
        "Give the log of an older table a key: from then on only who may read the table's directory can bring files in."
    ),
    "state-lineage": "State what a job outside Fluvial has read and written; lineage shows it as stated by hand.",
    "sync-log": "Write what bypassed a table's log into it, as the next batch would: see log.overwrite.",
    "table-diff": (
        "Count what differs between two states of a table, by rows and by columns; fluvial diff shows the rows."
    ),
    "trigger-tag-automatic-creation": (
        "Make the tags that the table's options ask for and that are due; streams do it by themselves."
    ),
    "validate-snapshot": "Recompute a snapshot from what its job had read, and count the differences. Needs Spark.",
    "verify": (
        "Cross-check files, manifests, snapshots, hints and the log; changes nothing, and does not stop at what is"
        " broken."
    ),
}
"""Actions, which are generated from procedures: short help."""

GROUPS: Final[Mapping[str, tuple[str, Mapping[str, str]]]] = {
    "branch": (
        "Side lines of a table.",
        {
            "create": "create-branch",
            "delete": "delete-branch",
            "rename": "rename-branch",
            "merge": "merge-branch",
            "fast-forward": "fast-forward",
            "replace-main": "replace-main-branch",
            "publish": "audit-publish",
        },
    ),
    "checkpoint": (
        "Where streaming queries continue.",
        {"restore": "restore-checkpoint", "rewind": "rewind-checkpoint"},
    ),
    "consumer": ("Named readers of a table.", {"reset": "reset-consumer", "clear": "clear-consumers"}),
    "cut": ("One moment of many tables.", {"create": "create-consistent-tag", "rollback": "rollback-to-cut"}),
    "files": (
        "Data files and manifests: what is lost, left over or missing.",
        {
            "remove-orphans": "remove-orphan-files",
            "remove-lost": "remove-unexisting-files",
            "remove-lost-manifests": "remove-unexisting-manifests",
            "compact-manifest": "compact-manifest",
            "analyze": "analyze",
            "rewrite-index": "rewrite-file-index",
            "purge": "purge-files",
            "migrate": "migrate-table",
        },
    ),
    "log": (
        "The topic of a table.",
        {
            "reset": "reset-log",
            "adopt": "adopt-copy",
            "sign": "sign-log",
            "sync": "sync-log",
            "remove-login": "remove-stored-login",
        },
    ),
    "partition": (
        "Partitions of a table.",
        {"drop": "drop-partition", "expire": "expire-partitions", "mark-done": "mark-partition-done"},
    ),
    "savepoint": (
        "States that are kept with their queries.",
        {"create": "create-savepoint", "delete": "delete-savepoint", "rollback": "rollback-to-savepoint"},
    ),
    "snapshot": (
        "Versions of a table: expiry, rollback, repair.",
        {
            "expire": "expire-snapshots",
            "expire-changelogs": "expire-changelogs",
            "rollback": "rollback",
            "rollback-as-latest": "rollback-to-as-latest",
            "rollback-to-timestamp": "rollback-to-timestamp",
            "rollback-to-watermark": "rollback-to-watermark",
            "repair": "repair",
            "repair-earliest": "repair-earliest-snapshot",
            "validate": "validate-snapshot",
        },
    ),
    "tag": (
        "Names of states that are kept.",
        {
            "create": "create-tag",
            "create-from-timestamp": "create-tag-from-timestamp",
            "delete": "delete-tag",
            "rename": "rename-tag",
            "replace": "replace-tag",
            "expire": "expire-tags",
            "trigger": "trigger-tag-automatic-creation",
        },
    ),
    "job-lineage": (
        "Which job made what, and what follows from it.",
        {
            "impact": "impact",
            "recovery-plan": "recovery-plan",
            "state": "state-lineage",
            "repair": "repair-lineage",
            "delete-tables": "delete-table-lineage",
            "delete-data": "delete-data-lineage",
        },
    ),
}
"""Actions by what they are about: one line about the group, and the name of each action in it."""

SECTIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "Look": (
        "ls",
        "topics",
        "read",
        "tail",
        "describe",
        "diff",
        "table-diff",
        "inspect",
        "sql",
        "shell",
        "serve",
        "config",
    ),
    "Job files and whole databases": ("init", "validate", "plan", "run", "recover", "cdc", "package", "spark-conf"),
    "Watch": ("ui", "top", "lag", "metrics", "trace", "lineage", "doctor", "verify"),
    "Look after tables": (
        "create",
        "rename",
        "drop",
        "compact",
        "compact-database",
        "cluster",
        "rescale",
        "copy",
        "export",
    ),
    "This machine": ("broker", "simulate"),
}
"""Commands that are not in a group, by what they are for."""
