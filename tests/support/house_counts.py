"""What the house is made of, by its syntax trees; as a program, one line for each number: ``make house``."""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("engine", "logstore", "filestore", "lsm")
FILES: Final = sorted(path for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
WALL: Final = "engine.spark_internals"
"""The package that alone names what is not public in Spark."""

_PUBLIC: Final = {
    "pyspark",
    "pyspark.errors",
    "pyspark.logger",
    "pyspark.sql",
    "pyspark.sql.datasource",
    "pyspark.sql.functions",
    "pyspark.sql.streaming",
    "pyspark.sql.streaming.datasource",
    "pyspark.sql.types",
}
"""Modules of PySpark whose names its documentation has."""

_MODULES: Final = ("daemon", "util", "cloudpickle", "serializers", "worker", "java_gateway", "accumulators")
"""Modules that are not public, though ``from pyspark import`` has them."""

_OF_PYSPARK: Final = re.compile(r"_(j(vm|df|c|sc|conf|map|read|write|query|[a-z]+Session)|gateway|sc|streamReader)")
_OF_CONTEXT: Final = {"_active_spark_context", "_ensure_initialized", "_encryption_enabled", "_temp_dir"}
_OF_JVM: Final = {
    "activeStreamingQueries",
    "analyzed",
    "catalogManager",
    "collectLeaves",
    "executedPlan",
    "exprId",
    "inputPartitions",
    "lastExecution",
    "optimizedPlan",
    "pickedPartition",
    "queryExecution",
    "sessionState",
    "sharedState",
    "sqlContext",
    "sqlParser",
    "toRdd",
}
"""Members of Spark's Scala classes; the interfaces of its catalogs, ``org.apache.spark.sql.connector``, are public."""

_CLASSES: Final = re.compile(r"org\.apache\.spark\.(?!sql\.connector\.(catalog|expressions|metric|read|write)\b)")
_PRIVATE_MODULE: Final = re.compile(r"pyspark\.(?!zip)\w+(\.\w+)*")


@cache
def tree(path: Path) -> ast.Module:
    """Of a file; not before it is asked for, because each process of a run imports this module."""
    return ast.parse(path.read_text(encoding="utf-8"))


def module_of(path: Path) -> str:
    """The name that a file is imported by."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES: Final = {module_of(path): path for path in FILES}


def for_one() -> list[str]:
    """The modules that one other module imports."""
    importers: dict[str, set[str]] = defaultdict(set)
    for module, path in MODULES.items():
        for node in ast.walk(tree(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
            for name in {*names} & MODULES.keys() - {module}:
                importers[name].add(module)
    return [name for name, found in importers.items() if len(found) == 1 and MODULES[name].name != "__init__.py"]


def private_in(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Line and name of each place of a module that names what is not public in PySpark, py4j or Spark's JVM."""
    texts = {id(each.value) for node in ast.walk(module) for each in _statements(node) if _is_text(each)}
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, each.name) for each in names if _is_private_module(each.name))
            case ast.ImportFrom(module=str(name), names=names):
                whole = [name, *(f"{name}.{each.name}" for each in names if name == "pyspark")]
                yield from ((node.lineno, each) for each in whole if _is_private_module(each))
                if name.partition(".")[0] == "pyspark":
                    yield from ((node.lineno, each.name) for each in names if each.name.startswith("_"))
            case ast.Attribute(attr=name) if name in _OF_JVM or _is_private(name):
                yield node.lineno, name
            case ast.Constant(value=str(text)) if id(node) not in texts:
                if _CLASSES.match(text) or _is_private(text) or _PRIVATE_MODULE.fullmatch(text):
                    yield node.lineno, text
            case _:
                pass


def private_outside() -> list[str]:
    """Each place outside the wall that names what is not public in Spark, as ``file:line: name``."""
    return [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for module, path in MODULES.items()
        if not f"{module}.".startswith(f"{WALL}.")
        for line, name in private_in(tree(path))
    ]


def _statements(node: ast.AST) -> list[ast.stmt]:
    body = getattr(node, "body", [])
    return body if isinstance(body, list) else []


def _is_text(statement: object) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _is_private(name: str) -> bool:
    return name in _OF_CONTEXT or _OF_PYSPARK.fullmatch(name) is not None


def _is_private_module(name: str) -> bool:
    first, _, second = name.partition(".")
    if first == "py4j":
        return True
    is_name = second.partition(".")[0] not in _MODULES and "." not in second
    return first == "pyspark" and name not in _PUBLIC and not (is_name and second[:1].isupper())


def counts() -> dict[str, int]:
    """The numbers by what they count."""
    layers = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    found = {
        "lines": sum(len(path.read_text(encoding="utf-8").splitlines()) for path in FILES),
        "modules": len(FILES),
        "folders": len({path.parent for path in FILES}),
        "modules for one importer": len(for_one()),
        "places outside the wall": len(private_outside()),
    }
    for name in PACKAGES:
        found[f"rooms of {name}"] = sum((each / "__init__.py").exists() for each in (ROOT / name).iterdir())
        contract = next(each for each in layers if each.get("containers") == [name])
        found[f"layers of {name}"] = len(contract["layers"])
    return found


if __name__ == "__main__":
    for name, number in counts().items():
        print(f"{number:>8,} {name}")
