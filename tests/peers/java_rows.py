"""Whole tables of rows in and out of a Java virtual machine, without a call for each row.

They cross as a Parquet file that Paimon's own reader and writer handle, so every type has Paimon's meaning. The loops
over rows are Java's: reader.forEachRemaining(consumer), with a consumer made of method handles.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from tests.peers.jvm import Jvm

KIND_COLUMN: Final = "_row_kind"

_ROW: Final = "data.InternalRow"
_OBJECT: Final = "java.lang.Object"
_KIND: Final = "types.RowKind"


def dump(jvm: Jvm, reader: Any, row_type: Any, path: Path) -> pa.Table:
    """A record reader's rows in its order, each after its kind, by way of a file at `path`. Closes the reader."""
    out = jvm.call(_file_io(jvm), "fs.FileIO", "newOutputStream", _path(jvm, path), True)
    dumped = _row_type(jvm, [_kind_field(jvm), *row_type.getFields()])
    factory = _parquet(jvm).createWriterFactory(dumped)
    writer = jvm.call(factory, "format.FormatWriterFactory", "create", out, "zstd")
    try:
        jvm.call(reader, "reader.RecordReader", "forEachRemaining", jvm.consumer(_adding(jvm, writer)))
        jvm.call(writer, "java.io.Closeable", "close")
    finally:
        jvm.call(reader, "java.io.Closeable", "close")
        jvm.call(out, "java.io.Closeable", "close")
    rows = pq.read_table(path)
    for field in row_type.getFields():  # nanoseconds are INT96 in Parquet, which says nothing of zones
        position = rows.column_names.index(field.name())
        column = rows.column(position)
        if "LOCAL" in field.type().getTypeRoot().name() and column.type.tz is None:
            rows = rows.set_column(position, field.name(), column.cast(pa.timestamp(column.type.unit, tz="UTC")))
    return rows


def feed(jvm: Jvm, rows: pa.Table, kinds: Sequence[int], row_type: Any, write: Any, path: Path) -> None:
    """Put rows with their kinds into a TableWrite; columns of `row_type` that are not given are null."""
    _write_parquet(rows.append_column(KIND_COLUMN, pa.array(kinds, pa.int8())), path)
    fields = {field.name(): field for field in row_type.getFields()}
    given = rows.column_names
    file_type = _row_type(jvm, [*(fields[name] for name in given), _kind_field(jvm)])
    factory = _parquet(jvm).createReaderFactory(file_type, file_type, jvm.java_list([]))
    file_path = _path(jvm, path)
    context_class = jvm.kept("reader context", lambda: jvm.paimon.format.FormatReaderContext)
    context = context_class(_file_io(jvm), file_path, path.stat().st_size)
    reader = jvm.call(factory, "format.FormatReaderFactory", "createReader", context)
    mapping = [given.index(name) if name in given else -1 for name in fields]
    try:
        jvm.call(
            reader, "reader.RecordReader", "forEachRemaining", jvm.consumer(_writing(jvm, write, mapping, len(given)))
        )
    finally:
        jvm.call(reader, "java.io.Closeable", "close")


def _adding(jvm: Jvm, writer: Any) -> Any:
    """Row -> writer.addElement(new JoinedRow(GenericRow.of((Object) row.getRowKind().toByteValue()), row))."""
    joined = jvm.kept("row after its kind", lambda: _joined(jvm))
    add = jvm.instance_handle("format.FormatWriter", "addElement", "void", [_ROW]).bindTo(writer)
    return jvm.handles.filterReturnValue(joined, add)


def _joined(jvm: Jvm) -> Any:
    handles = jvm.handles
    kind = handles.filterReturnValue(
        jvm.instance_handle(_ROW, "getRowKind", _KIND), jvm.instance_handle(_KIND, "toByteValue", "byte")
    )
    row_of = jvm.static_handle("data.GenericRow", "of", "data.GenericRow", ["[Ljava.lang.Object;"])
    row_of_one = jvm.retyped(row_of.asCollector(jvm.java_class("[Ljava.lang.Object;"), 1), _ROW, [_OBJECT])
    kind_row = handles.filterReturnValue(jvm.retyped(kind, _OBJECT, [_ROW]), row_of_one)
    join = jvm.retyped(jvm.constructor_handle("data.JoinedRow", [_ROW, _ROW]), _ROW, [_ROW, _ROW])
    return handles.foldArguments(join, kind_row)


def _writing(jvm: Jvm, write: Any, mapping: Sequence[int], kind_index: int) -> Any:
    """Row -> { row.setRowKind(fromByteValue(row.getByte(kind_index))); write.write(projected.replaceRow(row)); }."""
    handles = jvm.handles
    mark = jvm.kept(("mark", kind_index), lambda: _marking(jvm, kind_index))
    row_class = jvm.kept("projected row", lambda: jvm.paimon.utils.ProjectedRow)
    projected = getattr(row_class, "from")(jvm.java_array("int", mapping))
    project = jvm.instance_handle("utils.ProjectedRow", "replaceRow", "utils.ProjectedRow", [_ROW]).bindTo(projected)
    put = jvm.instance_handle("table.sink.TableWrite", "write", "void", [_ROW]).bindTo(write)
    return handles.foldArguments(handles.filterReturnValue(jvm.retyped(project, _ROW, [_ROW]), put), mark)


def _marking(jvm: Jvm, kind_index: int) -> Any:
    """Row -> row.setRowKind(fromByteValue(row.getByte(kind_index)))."""
    handles = jvm.handles
    byte = jvm.instance_handle(_ROW, "getByte", "byte", ["int"])
    byte = handles.insertArguments(byte, 1, jvm.java_array(_OBJECT, [kind_index]))
    kind = handles.filterReturnValue(byte, jvm.static_handle(_KIND, "fromByteValue", _KIND, ["byte"]))
    set_kind = jvm.instance_handle(_ROW, "setRowKind", "void", [_KIND])
    kind_then_row = jvm.signature("void", [_KIND, _ROW])
    by_kind = handles.permuteArguments(set_kind, kind_then_row, jvm.java_array("int", [1, 0]))
    return handles.foldArguments(by_kind, kind)


def _kind_field(jvm: Jvm) -> Any:
    def make() -> Any:
        return jvm.paimon.types.DataField(1 << 20, KIND_COLUMN, jvm.paimon.types.DataTypes.TINYINT())

    return jvm.kept("kind field", make)


def _file_io(jvm: Jvm) -> Any:
    return jvm.kept("file io", lambda: jvm.paimon.fs.local.LocalFileIO.create())


def _parquet(jvm: Jvm) -> Any:
    def make() -> Any:
        return jvm.paimon.format.FileFormat.fromIdentifier("parquet", jvm.paimon.options.Options())

    return jvm.kept("parquet", make)


def _path(jvm: Jvm, path: Path) -> Any:
    return jvm.kept("path", lambda: jvm.paimon.fs.Path)(str(path))


def _row_type(jvm: Jvm, fields: Sequence[Any]) -> Any:
    return jvm.kept("row type", lambda: jvm.paimon.types.RowType)(jvm.java_list(fields))


def _write_parquet(rows: pa.Table, path: Path) -> None:
    """Write rows with the physical types that Paimon's reader expects: see paimon-format, "Rules that cost data"."""
    nanos = any(pa.types.is_timestamp(kind) and kind.unit == "ns" for kind in rows.schema.types)
    pq.write_table(rows, path, store_decimal_as_integer=True, use_deprecated_int96_timestamps=nanos, compression="zstd")
