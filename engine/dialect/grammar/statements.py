"""Statements about tables, as values: what is said, before anything is looked up.

Names are in parts, as they were written: ``[catalog.][database.]table``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from engine.dialect.grammar.places import SourceText
from filestore.evolution.schema_change import SchemaChange
from filestore.types.data_types import DataField

Name = tuple[str, ...]
PartitionSpec = Mapping[str, str | None]
"""Texts of values by column, in the order of the statement; None is NULL."""


@dataclass(frozen=True)
class Statement:
    """One statement of a text."""

    text: str  # its own, without the ``;``
    start: int  # offset in the whole text
    tree: Any  # exp.Expr, Explain, Call, SparkStatement or a class of this module
    whole: str = field(repr=False)  # the text that it is part of

    @property
    def source(self) -> SourceText:
        """Makes errors that point at parts of the statement."""
        return SourceText(self.text, self.whole, self.start)


@dataclass(frozen=True, kw_only=True)
class CreateDatabase:
    """``CREATE DATABASE [IF NOT EXISTS] name``."""

    name: Name
    if_not_exists: bool


@dataclass(frozen=True, kw_only=True)
class DropDatabase:
    """``DROP DATABASE [IF EXISTS] name [RESTRICT | CASCADE]``."""

    name: Name
    if_exists: bool
    cascade: bool


@dataclass(frozen=True, kw_only=True)
class Use:
    """``USE [CATALOG | DATABASE] name``."""

    name: Name
    is_catalog: bool = False


@dataclass(frozen=True, kw_only=True)
class ComputedColumn:
    """``name AS expression``: worked out when it is read, stored nowhere."""

    name: str
    expression: str
    comment: str | None = None


@dataclass(frozen=True, kw_only=True)
class Watermark:
    """``WATERMARK FOR column AS expression``."""

    column: str
    expression: str


@dataclass(frozen=True, kw_only=True)
class CreateLike:
    """``LIKE source``; what of the source is taken."""

    source: Name
    options: str = "INCLUDING"  # INCLUDING | EXCLUDING | OVERWRITING
    partitions: str = "INCLUDING"
    constraints: str = "INCLUDING"
    generated: str = "INCLUDING"
    watermarks: str = "INCLUDING"


@dataclass(frozen=True, kw_only=True)
class CreateTable:
    """``CREATE [OR REPLACE] TABLE``, ``REPLACE TABLE``, with the query of AS SELECT."""

    name: Name
    if_not_exists: bool = False
    or_replace: bool = False  # replace an existing one
    must_exist: bool = False  # REPLACE TABLE
    fields: tuple[DataField, ...] = ()
    computed: tuple[ComputedColumn, ...] = ()
    watermark: Watermark | None = None
    primary_key: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    checks: Mapping[str, str] = field(default_factory=dict)  # conditions by option
    comment: str | None = None
    provider: str | None = None  # lower case
    like: CreateLike | None = None
    query: Statement | None = None


@dataclass(frozen=True, kw_only=True)
class DropTable:
    """``DROP TABLE [IF EXISTS] name [FORCE]``."""

    name: Name
    if_exists: bool
    force: bool = False  # though the brokers of its log do not answer


@dataclass(frozen=True, kw_only=True)
class TruncateTable:
    """``TRUNCATE TABLE name [PARTITION (...)]``."""

    name: Name
    partition: PartitionSpec | None


@dataclass(frozen=True, kw_only=True)
class AnalyzeTable:
    """``ANALYZE TABLE name COMPUTE STATISTICS [FOR COLUMNS a, b | FOR ALL COLUMNS]``."""

    name: Name
    columns: tuple[str, ...] | None  # None: all


@dataclass(frozen=True, kw_only=True)
class AnalyzeTables:
    """``ANALYZE TABLES [IN database] COMPUTE STATISTICS [NOSCAN]``."""

    database: Name
    counts_rows: bool


@dataclass(frozen=True, kw_only=True)
class AlterTable:
    """``ALTER TABLE [IF EXISTS] name`` followed by changes of its schema."""

    name: Name
    if_exists: bool
    changes: tuple[SchemaChange, ...]
    if_column_not_exists: bool = False
    if_column_exists: bool = False
    adds_check: bool = False  # that is not there yet
    if_check_exists: bool = True  # False: a constraint is dropped that must be there


@dataclass(frozen=True, kw_only=True)
class ReplaceColumns:
    """``ALTER TABLE name REPLACE COLUMNS (...)``."""

    name: Name
    if_exists: bool
    fields: tuple[DataField, ...]


@dataclass(frozen=True, kw_only=True)
class SetPartitionOptions:
    """``ALTER TABLE name PARTITION (...) SET (...)``."""

    name: Name
    if_exists: bool
    partition: PartitionSpec
    options: Mapping[str, str] = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class RenameTable:
    """``ALTER TABLE [IF EXISTS] name RENAME TO new_name``."""

    name: Name
    if_exists: bool
    new_name: Name


@dataclass(frozen=True, kw_only=True)
class CompactTable:
    """``ALTER TABLE name [PARTITION (...)] COMPACT``."""

    name: Name
    if_exists: bool
    partition: PartitionSpec | None


@dataclass(frozen=True, kw_only=True)
class DropPartitions:
    """``ALTER TABLE name DROP [IF EXISTS] PARTITION (...), ...``."""

    name: Name
    if_exists: bool
    if_partition_exists: bool
    partitions: tuple[PartitionSpec, ...]


@dataclass(frozen=True, kw_only=True)
class DescribeTable:
    """``DESCRIBE [TABLE] [EXTENDED | FORMATTED | DETAIL] name [PARTITION (...)] [column | AS JSON]``."""

    name: Name
    extended: bool
    partition: PartitionSpec | None
    column: Name = ()
    as_json: bool = False


@dataclass(frozen=True, kw_only=True)
class DescribeHistory:
    """``DESCRIBE HISTORY name [LIMIT count]``."""

    name: Name
    limit: int | None


@dataclass(frozen=True, kw_only=True)
class DescribeDatabase:
    """``DESCRIBE DATABASE [EXTENDED] name``."""

    name: Name
    extended: bool


@dataclass(frozen=True, kw_only=True)
class ShowDatabases:
    """``SHOW DATABASES [LIKE pattern]``."""

    pattern: str | None


@dataclass(frozen=True, kw_only=True)
class ShowTables:
    """``SHOW TABLES [IN database] [LIKE pattern]``."""

    database: Name
    pattern: str | None


@dataclass(frozen=True, kw_only=True)
class ShowCreateTable:
    """``SHOW CREATE TABLE name``."""

    name: Name


@dataclass(frozen=True, kw_only=True)
class ShowPartitions:
    """``SHOW PARTITIONS name [PARTITION (...)]``."""

    name: Name
    partition: PartitionSpec


@dataclass(frozen=True, kw_only=True)
class ShowProperties:
    """``SHOW TBLPROPERTIES name [('key')]``."""

    name: Name
    key: str | None


@dataclass(frozen=True, kw_only=True)
class ShowColumns:
    """``SHOW COLUMNS IN name``."""

    name: Name


@dataclass(frozen=True, kw_only=True)
class ShowProcedures:
    """``SHOW PROCEDURES [IN [catalog.]sys] [LIKE pattern]``."""

    space: Name
    pattern: str | None


@dataclass(frozen=True, kw_only=True)
class SetSetting:
    """``SET table-storage.key = value``; without a value it is asked for, without a key all are."""

    key: str | None
    value: str | None
    is_sparks: bool = False  # SET 'pipeline.name' = 'job': another key in quotes, which Spark's own grammar has not


@dataclass(frozen=True, kw_only=True)
class ResetSetting:
    """``RESET [table-storage.key]``."""

    key: str | None
    is_sparks: bool = False  # see ``SetSetting``
