"""Writing a table for Spark's planner: by the writer of ``format("fluvial")``, in tasks."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

from pyspark.sql.types import StructType

from engine.spark.catalog.proxy import Proxy, called
from engine.spark.data_source import FORMAT_NAME
from engine.spark.write_options import DYNAMIC_KEY, PARTITION_KEY
from engine.spark_internals.catalog import SparkInside
from lsm.errors import InvalidInputError

_ALWAYS: Final = "ALWAYS_TRUE"
_NEVER: Final = "ALWAYS_FALSE"
_SAME: Final = ("StringType", "ByteType", "ShortType", "IntegerType", "LongType", "BooleanType")


class WriteBuilderProxy(Proxy):
    """One write: Spark says what of the table is replaced."""

    def __init__(self, inside: SparkInside, info: Any, place: Mapping[str, str], partition_keys: Sequence[str]) -> None:
        """``info`` is what Spark says of the rows; without more an append."""
        super().__init__(inside)
        self._info = info
        self._options = dict(place)
        self._partition_keys = partition_keys
        self._is_overwrite = False

    @called
    def truncate(self) -> "WriteBuilderProxy":
        """Spark's: all rows are replaced."""
        self._is_overwrite = True
        self._options[DYNAMIC_KEY] = "false"
        return self

    @called
    def overwriteDynamicPartitions(self) -> "WriteBuilderProxy":
        """Spark's: the partitions of the rows are replaced."""
        self._is_overwrite = True
        self._options[DYNAMIC_KEY] = "true"
        return self

    def canOverwrite(self, predicates: Any) -> bool:
        """Spark's: it would refuse others without a word about what can be done."""
        return True

    @called
    def overwrite(self, predicates: Any) -> "WriteBuilderProxy":
        """Spark's: all of the table, nothing of it, or one value of some partition columns."""
        if any(each.name() == _NEVER for each in predicates):
            return self
        parts = self._parts(predicates)
        if parts is None:
            raise InvalidInputError(
                "a frame replaces one partition or the table: "
                f"condition={' AND '.join(str(each.toString()) for each in predicates)} "
                "fix='INSERT INTO ... REPLACE WHERE condition SELECT ..., or overwritePartitions()'"
            )
        self._is_overwrite = True
        self._options[DYNAMIC_KEY] = "false"
        if parts:
            self._options[PARTITION_KEY] = ",".join(parts)
        return self

    @called
    def build(self) -> Any:
        """Implements ``build`` of Spark's interface."""
        info = self.inside.write_info(self._info, self._options)
        writer = self.inside.python_table(self.inside.struct(StructType()), FORMAT_NAME).newWriteBuilder(info)
        return (writer.truncate() if self._is_overwrite else writer).build()

    @called
    def buildForBatch(self) -> Any:
        """Implements ``buildForBatch`` of Spark's interface."""
        return self.build().toBatch()

    @called
    def buildForStreaming(self) -> Any:
        """Implements ``buildForStreaming`` of Spark's interface."""
        return self.build().toStreaming()

    class Java:
        """The interfaces that py4j implements with this object."""

        implements: Sequence[str] = (
            "org.apache.spark.sql.connector.write.SupportsOverwriteV2",
            "org.apache.spark.sql.connector.write.SupportsDynamicOverwrite",
        )

    def _parts(self, predicates: Any) -> list[str] | None:
        """``column=value`` of each condition; None: there is another one."""
        found = []
        for each in predicates:
            if each.name() == _ALWAYS:
                continue
            children = list(each.children())
            if each.name() not in ("=", "<=>") or len(children) != 2 or not _is_literal(children):
                return None
            name, kind = ".".join(children[0].fieldNames()), str(children[1].dataType().toString()).partition("(")[0]
            if name not in self._partition_keys or kind not in _SAME:
                return None
            found.append(f"{name}={quote(str(children[1].value()))}")
        return found


def _is_literal(children: Sequence[Any]) -> bool:
    kinds = [str(each.getClass().getSimpleName()) for each in children]
    return kinds == ["FieldReference", "LiteralValue"]
