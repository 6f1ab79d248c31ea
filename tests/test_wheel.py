"""The wheel, installed where nothing else of this checkout is: its packages, names, commands and neighbours."""

import re
import subprocess
import sys
import sysconfig
import zipfile
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

import engine

pytestmark = pytest.mark.sweep

ROOT = Path(__file__).parents[1]
PACKAGES = ("engine", "logstore", "filestore", "lsm")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = directory.glob("*.whl")
    return found


@pytest.fixture
def site(wheel: Path, tmp_path: Path) -> Path:
    """A directory of packages with the wheel in it."""
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile", "--target"]
    done = subprocess.run([*pip, str(tmp_path / "site"), str(wheel)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return tmp_path / "site"


def run_installed(site: Path, script: str, *arguments: str) -> tuple[int, str, str]:
    """Run a script with the wheel and what it depends on; ``-S`` leaves this checkout out, ``-P`` its directory."""
    begin = f"import sys; sys.path += [{str(site)!r}, {sysconfig.get_path('purelib')!r}]\n"
    command = [sys.executable, "-I", "-S", "-c", begin + script, *arguments]
    done = subprocess.run(command, cwd=site.parent, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


def test_it_holds_the_four_packages_and_the_spark_modules(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info/" not in name}
    more = {"fluvial", "pyspark_fluvial", "pyspark_fluvial_kafka"}
    assert tops == {*PACKAGES, *more}
    assert {*(f"{name}/__init__.py" for name in more), "engine/broker/broker-jars.lock"} <= set(names)
    assert not [name for name in names if name.startswith("engine/plugin")]
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {found for page in pages for found in re.findall(r"conf/[\w/.@-]+\.\w+", page.read_text(encoding="utf-8"))}
    in_wheel = {f"conf/{name.removeprefix('engine/deploy/conf/')}" for name in names}
    assert sorted(shown - in_wheel) == ["conf/constraints.txt"], "of a checkout; all else that pages name is shipped"
    assert {f"{package}/py.typed" for package in (*PACKAGES, "fluvial")} <= set(names)


def test_all_public_names_come_from_it(site: Path) -> None:
    script = """
import fluvial, inspect, sys
print(*sorted(fluvial.__all__))
values = [getattr(fluvial, name) for name in fluvial.__all__]
homes = {sys.modules[each.__module__].__file__ for each in values if inspect.isclass(each) or inspect.isfunction(each)}
print(*homes, sep="\\n")
"""
    code, out, err = run_installed(site, script)
    assert (code, err) == (0, "")
    names, *homes = out.splitlines()
    assert names.split() == sorted({"procedures", *engine.__all__})
    assert len(homes) > 10
    assert [home for home in homes if not home.startswith(f"{site}/")] == []


def test_it_is_a_command(site: Path) -> None:
    script = "from importlib.metadata import entry_points\n"
    script += "(command,) = entry_points(group='console_scripts', name='fluvial'); command.load()()"
    code, out, err = run_installed(site, script, "--version")
    assert (code, err) == (0, "")
    assert out.startswith("fluvial, version ")


def test_it_leaves_the_pyspark_of_a_cluster_as_it_is(site: Path) -> None:
    (information,) = site.glob("*.dist-info")
    needs = PathDistribution(information).requires or []
    hard = {re.split(r"[<>=\[; ]", each)[0] for each in needs if "extra ==" not in each}
    assert "pyarrow" in hard
    assert hard.isdisjoint({"pyspark", "py4j", "pandas", "grpcio", "protobuf"})


def test_a_module_beside_a_package_of_the_same_name_hides_nothing(site: Path) -> None:
    """As ``lsm-db`` installs a module ``lsm``: Python takes the package."""
    (site / "lsm.py").write_text("raise SystemExit('this is run by nobody')\n", encoding="utf-8")
    code, out, err = run_installed(site, "import fluvial; print(fluvial.TakenOverError.__module__)")
    assert (code, out, err) == (0, "lsm.errors\n", "")


@pytest.mark.parametrize("text", ["", "__all__ = ['Engine']\n", "raise RuntimeError('only in our application')\n"])
def test_another_package_that_was_installed_over_it_is_named(site: Path, text: str) -> None:
    """Pip writes a package ``engine`` of another project into the directory of Fluvial's."""
    (site / "engine" / "__init__.py").write_text(text, encoding="utf-8")
    code, _, err = run_installed(site, "from fluvial import Catalog")
    assert code == 1
    assert err.splitlines()[-1] == (
        f"ImportError: another package was installed over a package of Fluvial: package=engine"
        f" found={site}/engine/__init__.py fix='install fluvial again, without the other one'"
    )
