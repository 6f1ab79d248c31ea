"""The package ``fluvial``: the public names of ``engine``, and the errors where something hides it or is missing."""

import inspect
import os
import re
import subprocess
import sys
import zipfile
from dataclasses import is_dataclass
from pathlib import Path
from types import FunctionType

import pytest

import engine
import fluvial
from engine import procedures
from engine.deploy.shipping import write_shipment
from filestore.catalog.catalog import FileCatalog
from filestore.table import FileTable

ROOT = Path(__file__).parents[2]
_WITHOUT_SPARK = """
import sys
from importlib.abc import MetaPathFinder


class Missing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, Missing())
"""


def run_python(*arguments: str, before: Path | None = None, directory: Path = ROOT) -> tuple[int, str, str]:
    """Run this Python with our packages on its path; ``before`` comes first, as a program's own directory does."""
    path = [*([str(before)] if before else []), str(ROOT), str(ROOT / "engine" / "plugin")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=directory, env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def without_spark(tmp_path: Path) -> Path:
    (tmp_path / "sitecustomize.py").write_text(_WITHOUT_SPARK, encoding="utf-8")
    return tmp_path


def test_it_has_the_public_names() -> None:
    assert {*fluvial.__all__} == {"procedures", *engine.__all__} <= {*dir(fluvial)}
    assert [name for name in engine.__all__ if getattr(fluvial, name) is not getattr(engine, name)] == []
    assert fluvial.procedures is procedures
    with pytest.raises(AttributeError, match="module 'fluvial' has no attribute 'table'"):
        fluvial.table  # noqa: B018
    assert issubclass(fluvial.TakenOverError, fluvial.ConflictError)


@pytest.mark.sweep
@pytest.mark.parametrize("package", ["engine", "filestore", "logstore", "lsm"])
@pytest.mark.parametrize("kind", ["module", "package", "archive"])
def test_a_module_that_hides_a_package_of_fluvial_is_named(tmp_path: Path, package: str, kind: str) -> None:
    """A program's own ``engine.py`` beside it, a library of that name, one in an archive."""
    text, place = "raise SystemExit('this is run by nobody')\n", tmp_path / "beside"
    place.mkdir()
    if kind == "archive":
        place = tmp_path / "beside.zip"
        with zipfile.ZipFile(place, "w") as packed:
            packed.writestr(f"{package}/__init__.py", text)
    elif kind == "package":
        (place / package).mkdir()
        (place / package / "__init__.py").write_text(text, encoding="utf-8")
    else:
        (place / f"{package}.py").write_text(text, encoding="utf-8")
    code, _, err = run_python("-c", "from fluvial import Catalog", before=place, directory=tmp_path)
    assert code == 1
    line = err.splitlines()[-1]
    assert line.startswith(f"ImportError: another module hides a package of Fluvial: package={package} found={place}")
    assert line.endswith("rename that module, or run this program in an environment without it")


@pytest.mark.sweep
def test_a_directory_without_modules_hides_nothing(tmp_path: Path) -> None:
    """A checkout in a directory ``fluvial``, or data in one called ``engine``, beside the program."""
    for name in ("fluvial", "engine", "lsm"):
        (tmp_path / name).mkdir()
    code, out, err = run_python("-c", "import fluvial; print(fluvial.Catalog.__name__)", before=tmp_path)
    assert (code, out) == (0, "Catalog\n"), err


@pytest.mark.sweep
def test_it_is_a_command_too(tmp_path: Path) -> None:
    code, out, err = run_python("-m", "fluvial", "--version", directory=tmp_path)
    assert code == 0, err
    assert "fluvial" in out


@pytest.mark.sweep
def test_tables_need_no_spark_that_is_installed(without_spark: Path, tmp_path: Path) -> None:
    script = f"""
import pyarrow as pa
from fluvial import Catalog, ConflictError, procedures
catalog = Catalog({str(tmp_path / "warehouse")!r})
table = catalog.create_table("shop.orders", pa.schema([("id", pa.int64())]), primary_key=["id"])
table.write(pa.table({{"id": [1, 2]}}))
procedures.compact(table)
with table.stream(follow=False) as stream:
    print(table.read().to_arrow().num_rows, sum(each.rows.num_rows for each in stream))
"""
    code, out, err = run_python("-c", script, before=without_spark)
    assert (code, out) == (0, "2 2\n"), err
    code, out, err = run_python(
        "-m", "fluvial", "read", "shop.orders", "--warehouse", str(tmp_path / "warehouse"), before=without_spark
    )
    assert code == 0, err


@pytest.mark.sweep
@pytest.mark.parametrize(
    "script",
    [
        "from fluvial import sink",
        "from fluvial import session",
        "import fluvial; fluvial.install",
        "import fluvial; fluvial.sql(None, 'SHOW DATABASES', 'warehouse')",
    ],
)
def test_what_needs_spark_says_how_to_get_it(script: str, without_spark: Path, tmp_path: Path) -> None:
    code, _, err = run_python("-c", script, before=without_spark, directory=tmp_path)
    assert code == 1
    fix = "this needs Spark, which is not installed: missing=pyspark fix=pip install 'fluvial[spark]'"
    assert err.splitlines()[-1] == f"ModuleNotFoundError: {fix}"


@pytest.mark.sweep
@pytest.mark.parametrize("command", ["run", "plan"])
def test_commands_that_need_spark_say_how_to_get_it(command: str, without_spark: Path) -> None:
    code, _, err = run_python("-m", "fluvial", command, "conf/orders.yaml", before=without_spark)
    assert code == 2
    assert err.startswith("error: this needs Spark, which is not installed: missing=")
    assert err.endswith(" fix=pip install 'fluvial[spark]'\n")


@pytest.mark.sweep
def test_it_is_shipped_with_jobs(tmp_path: Path) -> None:
    archive, _ = write_shipment(tmp_path / "ship")
    code, out, err = run_python("-c", "import fluvial; print(fluvial.__file__)", before=archive, directory=tmp_path)
    assert (code, out) == (0, f"{archive}/fluvial/__init__.py\n"), err


RAISES_NOTHING = {"Branches.__init__", "LineageListener.__init__", "watch_tables"}


def public_functions() -> dict[str, FunctionType]:
    """Functions of the package, and methods of its classes, of file tables and of file catalogs."""
    found = {name: value for name in engine.__all__ if inspect.isfunction(value := getattr(engine, name))}
    classes = [value for name in engine.__all__ if inspect.isclass(value := getattr(engine, name))]
    for each in (*classes, FileTable, FileCatalog):
        for name, member in vars(each).items():
            method = getattr(member, "__func__", member)
            is_public = not name.startswith("_") or (name == "__init__" and not is_dataclass(each))
            if is_public and inspect.isfunction(method):
                found[f"{each.__name__}.{name}"] = method
    return found


def missing_sections(name: str, function: FunctionType) -> list[str]:
    """Sections, and arguments, that a docstring lacks."""
    text = inspect.getdoc(function) or ""
    arguments, _, rest = text.partition("Args:")[2].partition("\n\n")
    names = [each for each in inspect.signature(function).parameters if each not in ("self", "cls")]
    missing = [each for each in names if not re.search(rf"^ +{each}: \S", arguments, re.MULTILINE)]
    returns = inspect.signature(function).return_annotation not in (None, "None")
    if returns and "contextmanager" not in inspect.getsource(function) and not re.search("Returns:|Yields:", rest):
        missing.append("Returns")
    return [*missing, *(["Raises"] if "Raises:" not in rest and name not in RAISES_NOTHING else [])]


def test_a_public_function_of_two_parameters_says_what_they_are_what_it_returns_and_what_it_raises() -> None:
    functions = {
        name: function
        for name, function in public_functions().items()
        if len({*inspect.signature(function).parameters} - {"self", "cls"}) > 1
    }
    assert len(functions) > 50
    assert {name: found for name, each in functions.items() if (found := missing_sections(name, each))} == {}
    assert {*RAISES_NOTHING} <= {*functions}
