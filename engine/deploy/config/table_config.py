"""Tables in a job file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Self

from pydantic import Field, field_validator, model_validator

from engine.deploy.config.section import Options, Section, hint, problem
from engine.dialect.grammar.type_grammar import parse_type
from engine.versions.expectations import condition_query
from filestore.types.data_types import DataField, DataType
from lsm.errors import InvalidInputError


class ColumnConfig(Section):
    """A column: its SQL type and an optional comment. Plain text is the type."""

    type: str
    """SQL type: BIGINT, STRING, DECIMAL(10, 2), TIMESTAMP_LTZ(3), ARRAY<INT>, ROW<a INT>; NOT NULL may follow."""
    comment: str | None = None
    """Shown to users."""

    @model_validator(mode="before")
    @classmethod
    def _text_is_type(cls, given: object) -> object:
        return {"type": given} if isinstance(given, str) else given

    @field_validator("type")
    @classmethod
    def _is_a_type(cls, given: str) -> str:
        try:
            parse_type(given)
        except InvalidInputError as error:
            raise problem(
                "not a type", facts=f"value={given} reason={str(error).partition(chr(10))[0]} fix=an SQL type"
            ) from error
        return given


Columns = Mapping[str, ColumnConfig]


class TableConfig(Section):
    """A table, created if missing. An existing one must have these columns and keys."""

    columns: Columns
    """Columns in order: name and type."""
    primary_key: tuple[str, ...] = ()
    """Rows with the same key replace each other; none: all rows are kept. It includes the partition columns."""
    partition_by: tuple[str, ...] = ()
    """One directory for each value of these columns."""
    options: Options = Field(default_factory=dict, repr=False)
    """Options of the table, with Paimon's names."""
    expect: tuple[str, ...] = ()
    """Conditions that `fluvial recover` checks before it publishes: amount >= 0 (of every row), count(*) > 0."""
    comment: str | None = None
    """Shown to users."""

    @field_validator("expect", mode="before")
    @classmethod
    def _text_is_one_condition(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given

    @field_validator("expect")
    @classmethod
    def _are_conditions(cls, given: tuple[str, ...]) -> tuple[str, ...]:
        for each in given:
            try:
                condition_query(each, "t")
            except InvalidInputError as error:
                raise problem("not a condition", facts=f"value={each} reason={error} fix='as: amount >= 0'") from error
        return given

    @model_validator(mode="after")
    def _keys_are_columns(self) -> Self:
        if not self.columns:
            raise problem("a table has columns", key="columns", facts="fix=name one")
        for key, names in (("primary_key", self.primary_key), ("partition_by", self.partition_by)):
            for name in names:
                if name not in self.columns:
                    raise problem("no such column", key=key, facts=f"column={name} {hint(name, self.columns)}")
        return self


def data_fields_of(columns: Columns, *, not_null: Sequence[str] = ()) -> list[DataField]:
    """The columns in the table format; columns in ``not_null`` become NOT NULL."""
    return [
        DataField(id=index, name=name, type=_type_of(name, spec, not_null), description=spec.comment)
        for index, (name, spec) in enumerate(columns.items())
    ]


def _type_of(name: str, spec: ColumnConfig, not_null: Sequence[str]) -> DataType:
    found = parse_type(spec.type)
    return replace(found, nullable=False) if name in not_null else found
