"""The preflight: what a newcomer reads when the machine lacks something."""

import hashlib
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from engine.preflight import failure_advice, java_command, java_major, java_problem, kind, python_problem

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "engine" / "preflight.py"


def preflight(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run it as the Makefile does: isolated, without our packages."""
    command = [sys.executable, "-I", str(SCRIPT), *arguments]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ('openjdk version "25-ea" 2025-09-16', 25),
        ("The operation couldn't be completed. Unable to locate a Java Runtime.", 0),
        ("", 0),
    ],
)
def test_javas_version_is_read_from_what_it_prints(text: str, major: int) -> None:
    assert java_major(text) == major


def test_the_java_that_is_checked_is_the_one_that_spark_will_start() -> None:
    assert java_command({"JAVA_HOME": "/jdk"}) == "/jdk/bin/java"
    assert java_command({}) == "java"


def test_a_missing_or_old_java_says_what_to_install() -> None:
    assert java_problem("java", 'version "17.0.1"') == ""
    assert java_problem("java", "").startswith("java was not found on the PATH: needed>=17; install one")
    old = java_problem("/jdk/bin/java", 'version "11.0.2"')
    assert old.startswith("java is too old at JAVA_HOME (/jdk/bin/java): found=11 needed>=17; point JAVA_HOME")
    assert "apt install openjdk-17-jdk-headless" in old


def test_an_old_python_names_a_newer_one_on_the_path() -> None:
    assert python_problem((3, 11), []) == ""
    assert python_problem((3, 14), []) == ""
    assert "make PYTHON=python3.12" in python_problem((3, 10), ["python3.12", "python3.14"])
    assert "apt install python3" in python_problem((3, 9), [])


@pytest.mark.parametrize(
    ("output", "fact"),
    [
        ("Max retries exceeded ... Temporary failure in name resolution", "the network did not answer"),
        (":::: ERRORS Server access error at url ... java.net.UnknownHostException", "the network did not answer"),
        ("Max retries exceeded: SSLError(CERTIFICATE_VERIFY_FAILED)", "certificate was not trusted"),
        ("ERROR: No matching distribution found for pyarrow==19.0.1", "a pinned version was not offered"),
        ("Found 1 known vulnerability in 1 package", "a pinned version has a published advisory"),
        ("ERROR: six: Dependency not found on PyPI and could not be audited: six (1.0)", "service does not know a pin"),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("SyntaxError: invalid syntax", "the lines above say why"),
    ],
)
def test_a_failed_command_ends_with_one_sentence_about_what_to_do(output: str, fact: str) -> None:
    advice = failure_advice(output, "installing")
    assert advice.startswith("installing failed: ")
    assert fact in advice
    assert "\n" not in advice


@pytest.mark.sweep
def test_this_machine_is_fit() -> None:
    done = preflight("check")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.sweep
def test_a_wrong_java_home_is_reported_before_anything_is_installed(tmp_path: Path) -> None:
    done = preflight("check", JAVA_HOME=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith(f"fluvial: java was not found at JAVA_HOME ({tmp_path}/bin/java)")


def test_a_commands_output_is_passed_on_and_its_failure_explained() -> None:
    program = "print('line'); raise SystemExit('ConnectTimeoutError')"
    done = preflight("run", "fetching", sys.executable, "-c", program)
    assert done.returncode == 2
    assert done.stdout == "line\nConnectTimeoutError\n"
    assert done.stderr.startswith("fluvial: fetching failed: the network did not answer")
    assert preflight("run", "fetching", sys.executable, "-c", "").returncode == 0


@pytest.mark.long
@pytest.mark.sweep
def test_an_environment_without_network_fails_with_the_reason(tmp_path: Path) -> None:
    """Needs no network itself: the index it is sent to is a closed port."""
    constraints = tmp_path / "constraints.txt"
    constraints.write_text("six==1.0\n")
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "1", "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": ""}
    done = preflight("venv", str(tmp_path / "venv"), str(constraints), "six", **closed)
    assert done.returncode == 2
    assert "the network did not answer" in done.stderr


@pytest.mark.long
@pytest.mark.sweep
def test_an_audit_that_cannot_reach_the_index_says_so_in_one_line_and_fails(tmp_path: Path) -> None:
    """The environment of the audit cannot be made, or is there and the service does not answer."""
    closed = {"PIP_INDEX_URL": "http://127.0.0.1:9/", "PIP_RETRIES": "1", "PIP_NO_CACHE_DIR": "1", "PIP_FIND_LINKS": ""}
    (tmp_path / "new").mkdir()
    done = audit(tmp_path / "new", **closed)
    assert done.returncode != 0
    assert [line for line in done.stderr.splitlines() if line.startswith("fluvial: ")] == [
        f"fluvial: installing into {tmp_path / 'new'} failed: the network did not answer; check the connection (behind "
        "a proxy or mirror: configure pip and Java for it), then run make again: files already fetched are kept"
    ]
    # one that is there, of which the interpreter has pip's own client instead of the auditor
    there = tmp_path / "there"
    (there / "bin").mkdir(parents=True)
    (there / ".stamp").touch()
    os.utime(there / ".stamp", (2**32, 2**32))
    script = there / "bin" / "python"
    script.write_text(f"#!/bin/sh\nexec {sys.executable} -m pip download --no-deps --no-cache-dir six==1.0\n")
    script.chmod(0o755)
    done = audit(there, **closed)
    assert done.returncode != 0
    lines = [line for line in done.stderr.splitlines() if line.startswith("fluvial: ")]
    assert len(lines) == 1, "one for all files of pins"
    assert lines[0].startswith("fluvial: auditing conf/constraints.txt failed: the network did not answer; ")


def audit(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = ["make", "audit", f"AUDIT={directory}", f"PYTHON={sys.executable}"]
    return subprocess.run(
        command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def wheel(directory: Path, text: str) -> str:
    """A wheel of the package ``alpha``, whose module is this text; its SHA-256."""
    info = "alpha-1.0.dist-info"
    files = {
        "alpha.py": text,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: alpha\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    path = directory / "alpha-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.long
def test_a_package_with_other_bytes_than_its_hash_is_not_installed(tmp_path: Path) -> None:
    """A version alone says nothing of what the index gives for it."""
    index, pins, venv = tmp_path / "index", tmp_path / "pins.txt", tmp_path / "venv"
    index.mkdir()
    (tmp_path / "hashes").mkdir()
    pins.write_text("alpha==1.0\n")
    hashes = tmp_path / "hashes" / pins.name
    offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}

    def installed(**more: str) -> tuple[int, str, list[str]]:
        done = preflight("venv", str(venv), str(pins), "alpha", **offline, **more)
        return done.returncode, done.stderr, [each.read_text() for each in venv.glob("lib/*/site-packages/alpha.py")]

    hashes.write_text(f"# for: {kind()}\nalpha==1.0 --hash=sha256:{wheel(index, 'good')}\n")
    assert installed() == (0, "", ["good"])
    wheel(index, "evil")
    code, error, files = installed()
    assert (code, "a package has other bytes than conf/hashes/ says" in error, files) == (1, True, [])
    code, error, files = installed(UNCHECKED_PINS="1")
    assert (code, "not compared" in error, files) == (0, True, ["evil"])
    hashes.write_text(hashes.read_text().replace(kind(), "plan9 mips  cpython-311"))
    code, error, files = installed()
    assert (code, "its hashes are of 'plan9 mips  cpython-311', this is" in error) == (0, True)


@pytest.mark.parametrize("pins", sorted((ROOT / "conf").glob("*constraints.txt")), ids=lambda path: path.name)
def test_every_pin_has_a_hash(pins: Path) -> None:
    """And no hash is of another version than the pin's: then what was compared would not be what is installed."""

    def named(text: str) -> dict[str, str]:
        lines = [line.partition(" ")[0].partition("==") for line in text.splitlines() if line and line[0] != "#"]
        return {re.sub(r"[-_.]+", "-", name).lower(): version for name, _, version in lines}

    locked = (pins.parent / "hashes" / pins.name).read_text()
    assert named(locked) == named(pins.read_text())
    hashed = re.compile(r"(#.*|\S+==\S+ --hash=sha256:[0-9a-f]{64}(  # source)?)")
    assert [line for line in locked.splitlines() if not hashed.fullmatch(line)] == []


@pytest.mark.parametrize("name", ["bench-constraints.txt", "constraints.txt", "dbt-constraints.txt"])
def test_what_builds_packages_that_come_as_source_is_pinned(name: str) -> None:
    """The setuptools of a new environment may build no wheel, and what pip keeps of earlier builds hides it."""
    lines = (ROOT / "conf" / "hashes" / name).read_text().splitlines()
    (version,) = (line.partition(" ")[0].partition("==")[2] for line in lines if line.startswith("setuptools=="))
    assert int(version.partition(".")[0]) >= 71, "the first that needs no package wheel"


def test_which_environments_have_packages_that_come_as_source() -> None:
    """Each of them is in the test above; the Python of .venv fills those of Spark alone, with its own setuptools."""
    hashes = sorted((ROOT / "conf" / "hashes").glob("*.txt"))
    assert [path.name for path in hashes if "# source" in path.read_text()] == [
        "bench-constraints.txt",
        "constraints.txt",
        "dbt-constraints.txt",
        "older-constraints.txt",
        "spark-4.0-constraints.txt",
        "spark-4.1-constraints.txt",
    ]
