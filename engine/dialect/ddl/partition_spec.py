"""``PARTITION (column = value, ...)`` as values of the table's partition columns."""

from collections.abc import Callable

import pyarrow as pa

from engine.dialect.grammar.statements import PartitionSpec
from filestore.maintenance.partitions import path_of
from filestore.table_store import TableStore
from filestore.types.casts import cast_array
from filestore.types.data_types import STRING, arrow_type
from lsm.errors import InvalidInputError
from lsm.keys.keys import internal_value
from lsm.nearest_names import did_you_mean, names_text


def spec_values(store: TableStore, spec: PartitionSpec) -> dict[str, object]:
    """Python values by column, in the order of the table's partition columns; None is null.

    Raises:
        InvalidInputError: not a partition column, or not a value of one.
    """
    keys = store.schema.partition_keys
    for name in spec:
        if name not in keys:
            raise InvalidInputError(
                f"not a partition column: table={store.name} column={name}{did_you_mean(name, keys)} "
                f"partition_columns={list(keys)}"
            )
    return {name: _scalar(store, name, spec[name]).as_py() for name in keys if name in spec}


def partition_test(store: TableStore, spec: PartitionSpec) -> Callable[[bytes], bool]:
    """Whether a partition (BinaryRow bytes) has these values; columns without a value match any."""
    wanted = {name: internal_value(_scalar(store, name, spec[name])) for name in spec_values(store, spec)}

    def matches(partition: bytes) -> bool:
        values = dict(zip(store.schema.partition_keys, store.partition_values(partition), strict=True))
        return all(values[name] == value for name, value in wanted.items())

    return matches


def check_complete(store: TableStore, spec: PartitionSpec) -> None:
    """Raises: InvalidInputError when the values do not name one partition."""
    spec_values(store, spec)
    missing = [name for name in store.schema.partition_keys if name not in spec]
    if missing or not spec:
        raise InvalidInputError(
            f"one partition must be named: table={store.name} given={dict(spec)} missing={missing} "
            f"partition_columns={list(store.schema.partition_keys)}"
        )


def nearest_partitions(store: TableStore, spec: PartitionSpec, partitions: list[bytes]) -> str:
    """The wanted partition, and those that are named most like it, for an error that it is not there."""
    wanted = "/".join(f"{name}={value}" for name, value in spec.items())
    return f"partition={dict(spec)} {names_text('partitions', wanted, (path_of(store, each) for each in partitions))}"


def named_partitions(store: TableStore, spec: PartitionSpec, partitions: list[bytes]) -> list[bytes]:
    """The partitions that match a specification, by path."""
    matches = partition_test(store, spec)
    return sorted((each for each in partitions if matches(each)), key=lambda each: path_of(store, each))


def _scalar(store: TableStore, name: str, text: str | None) -> pa.Scalar:
    data_type = store.schema.field(name).type
    if text is None or text == store.options.partition_default_name:
        return pa.scalar(None, arrow_type(data_type))
    try:
        return cast_array(pa.array([text], pa.string()), STRING, data_type)[0]
    except InvalidInputError as error:
        raise InvalidInputError(
            f"not a value of the partition column: table={store.name} column={name} type={data_type} value={text!r}"
        ) from error
