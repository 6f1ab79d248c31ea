"""Checks that a machine is ready for the first `make`, with nothing but the standard library.

The Makefile runs it before the virtual environment exists (`python3 -I engine/preflight.py …`), so it imports none of
our modules; and it parses on old Pythons, because it must be able to say which version to install.

    check                                   Python, its venv module, Java, disk
    venv DIRECTORY CONSTRAINTS ARGUMENT…    a new environment in DIRECTORY, `pip install ARGUMENT…` held to CONSTRAINTS;
                                            its archives have the hashes of hashes/ beside CONSTRAINTS, if those are
                                            of this kind of machine and Python
    hashes CONSTRAINTS…                     write these files: of what this machine's pip gets for the versions
    sbom FILE                               the packages of all environments, jars and Node's, with hashes, in CycloneDX
    run PURPOSE COMMAND…                    a command that needs the network; if it fails, one sentence about what to do
"""

import base64
import collections
import glob
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile

MIN_PYTHON = (3, 11)
MIN_JAVA = 17
MIN_FREE_BYTES = 3 << 30  # both environments, jars, and pip's build of the Spark wheel
KEPT_LINES = 200  # of a failing command's output; enough for the errors of pip and Ivy

NO_ANSWER = "the network did not answer"
EXIT_NO_ANSWER = 2

NETWORK_SIGNS = (
    "Temporary failure in name resolution",
    "Name or service not known",
    "nodename nor servname",
    "NameResolutionError",
    "Failed to establish a new connection",
    "Connection refused",
    "Connection reset",
    "Network is unreachable",
    "Max retries exceeded",
    "ConnectTimeoutError",
    "ReadTimeoutError",
    "ProxyError",
    "No route to host",
    "UnknownHostException",
    "NoRouteToHostException",
    "ConnectException",
    "SocketTimeoutException",
    "Server access error",
)
CERTIFICATE_SIGNS = ("CERTIFICATE_VERIFY_FAILED", "SSLHandshakeException", "PKIX path building failed", "SSLError")
DISK_SIGNS = ("No space left on device", "Errno 28")
VULNERABLE_SIGNS = ("known vulnerabilit",)
UNAUDITED_SIGNS = ("could not be audited",)
HASH_SIGNS = ("DO NOT MATCH THE HASHES",)
FOR = "# for: "  # before the kind of machine and Python, in a file of hashes
SOURCE = "  # source"  # behind the hash of an archive that has to be built
UNCHECKED = "UNCHECKED_PINS"
MISSING_SIGNS = ("No matching distribution found", "unresolved dependency", "not found in the index")


def java_major(version_text: str) -> int:
    """Feature release in the text of `java -version` (1.8 is 8); 0 when there is none.

    >>> java_major('openjdk version "17.0.15" 2025-04-15')
    17
    """
    found = re.search(r'version "(\d+)(?:\.(\d+))?', version_text)
    if not found:
        return 0
    first = int(found.group(1))
    return int(found.group(2) or 0) if first == 1 else first


def java_command(environment: "dict[str, str]") -> str:
    """The Java that Spark will start: from JAVA_HOME if set, else `java` on the PATH."""
    home = environment.get("JAVA_HOME", "")
    return os.path.join(home, "bin", "java") if home else "java"


def java_version_text(command: str) -> str:
    """The output of `java -version`; "" when the command is missing."""
    try:
        done = subprocess.run([command, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
    except OSError:
        return ""
    return done.stdout.decode("utf-8", "replace")


def python_problem(version: "tuple[int, int]", newer: "list[str]") -> str:
    """How to fix a Python that is too old; "" when it is not. `newer`: commands on the PATH that are new enough."""
    if version >= MIN_PYTHON:
        return ""
    wanted = ".".join(str(part) for part in MIN_PYTHON)
    advice = (
        f"run `make PYTHON={newer[0]} …`"
        if newer
        else "install one, for example Debian 12: `apt install python3 python3-venv`"
    )
    return f"python is too old: found={version[0]}.{version[1]} needed>={wanted}; {advice}"


def java_problem(command: str, version_text: str) -> str:
    """How to fix a Java that is missing or too old; "" when it is neither."""
    major = java_major(version_text)
    if major >= MIN_JAVA:
        return ""
    if command == "java":
        place, advice = "on the PATH", "install one"
    else:
        place, advice = f"at JAVA_HOME ({command})", "point JAVA_HOME to a newer one or unset it, or install one"
    fact = f"java is too old {place}: found={major}" if major else f"java was not found {place}:"
    packages = (
        f"Debian or Ubuntu: `apt install openjdk-{MIN_JAVA}-jdk-headless`, "
        f"Fedora: `dnf install java-{MIN_JAVA}-openjdk-headless`, macOS: `brew install openjdk@{MIN_JAVA}`"
    )
    return f"{fact} needed>={MIN_JAVA}; {advice} ({packages}; any newer release will do)"


def venv_problem() -> str:
    """How to fix a Python without venv or pip, as on Debian; "" when it has them."""
    try:
        import ensurepip  # noqa: F401  (only probes whether it is installed)
        import venv  # noqa: F401
    except ImportError as error:
        return f"python has no {error.name} module: Debian or Ubuntu: `apt install python3-venv`"
    return ""


def disk_problem(free_bytes: int) -> str:
    """How to fix a disk that is nearly full, or ""."""
    if free_bytes >= MIN_FREE_BYTES:
        return ""
    return f"the disk is nearly full: free_mb={free_bytes >> 20} needed_mb={MIN_FREE_BYTES >> 20}"


def failure_advice(output: str, purpose: str) -> str:
    """One sentence on how to fix a failed command, from its output."""
    again = "then run make again: files already fetched are kept"
    for signs, fact, advice in (
        (DISK_SIGNS, "the disk is full", "make room"),
        (
            VULNERABLE_SIGNS,
            "a pinned version has a published advisory",
            "raise the pin to a version that the lines above name",
        ),
        (
            UNAUDITED_SIGNS,
            "the advisory service does not know a pin, or is not the real one",
            "reach it without a mirror between, or name another one (`make audit ARGS='-s osv'`)",
        ),
        (
            HASH_SIGNS,
            "a package has other bytes than conf/hashes/ says",
            "find out who changed it before you install it (a mirror?); a machine that takes other archives of the "
            f"same versions installs them unchecked with {UNCHECKED}=1",
        ),
        (
            CERTIFICATE_SIGNS,
            "the server's certificate was not trusted",
            "install your network's root certificate for pip and Java",
        ),
        (NETWORK_SIGNS, NO_ANSWER, "check the connection (behind a proxy or mirror: configure pip and Java for it)"),
        (
            MISSING_SIGNS,
            "a pinned version was not offered",
            "check that your mirror is complete and that this Python and platform have it",
        ),
    ):
        if any(sign in output for sign in signs):
            return f"{purpose} failed: {fact}; {advice}, {again}"
    return f"{purpose} failed: the lines above say why"


def newer_pythons() -> "list[str]":
    """Commands on the PATH that start a new enough Python, best first."""
    names = [f"python3.{minor}" for minor in (13, 12, 11, 14)]
    return [name for name in names if shutil.which(name) and runs([name, "-c", ""])]  # pyenv has stale shims too


def runs(command: "list[str]") -> bool:
    """Whether a command succeeds; its output is discarded."""
    return subprocess.call(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) == 0


def check() -> "list[str]":
    """Every problem of this machine, in the order to fix them; empty when it is ready."""
    command = java_command(dict(os.environ))
    found = [
        python_problem(sys.version_info[:2], newer_pythons()),
        venv_problem(),
        java_problem(command, java_version_text(command)),
        disk_problem(shutil.disk_usage(os.getcwd()).free),
    ]
    return [problem for problem in found if problem]


def run(purpose: str, command: "list[str]", environment: "dict[str, str]") -> "list[str]":
    """Run a command and pass on its output; a list with its problem if it fails, else empty."""
    tail = collections.deque(maxlen=KEPT_LINES)  # type: collections.deque[str]
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    except OSError as error:
        return [f"{purpose} failed: cannot start {command[0]}: {error}"]
    assert process.stdout is not None
    for line in process.stdout:
        text = line.decode("utf-8", "replace")
        tail.append(text)
        sys.stdout.write(text)
        sys.stdout.flush()
    if process.wait() == 0:
        return []
    return [failure_advice("".join(tail), purpose)]


def make_venv(directory: str, constraints: str, arguments: "list[str]") -> "list[str]":
    """Create the environment from scratch and install into it; returns the problems.

    A partly created environment stays until the next try; the Makefile's stamp file marks a complete one.
    """
    problem = python_problem(sys.version_info[:2], newer_pythons()) or venv_problem()
    if problem:
        return [problem]
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    }
    # for the builds of source packages pip 25.3 and later read the second name, earlier ones the first
    environment.update(PIP_CONSTRAINT=constraints, PIP_BUILD_CONSTRAINT=constraints, PIP_DISABLE_PIP_VERSION_CHECK="1")
    python = os.path.join(directory, "bin", "python")
    made = run(f"making {directory}", [sys.executable, "-m", "venv", "--clear", directory], environment)
    if made:
        return made
    install = [python, "-m", "pip", "install"]
    purpose = f"installing into {directory}"
    locked = locked_lines(hashes_of(constraints), environment)
    if not locked:
        return run(purpose, [*install, *arguments], environment)
    built = [line for line in locked if line.endswith(SOURCE)]
    exact = [*install, "--require-hashes", "--no-deps", "--no-build-isolation", "--requirement"]
    with tempfile.TemporaryDirectory() as work:
        for name, lines in (("wheels", [line for line in locked if line not in built]), ("sources", built)):
            wanted = os.path.join(work, name)
            with open(wanted, "w", encoding="utf-8") as file:
                file.write("\n".join(lines))
            problems = run(purpose, [*exact, wanted], {**environment, "PIP_CONSTRAINT": ""}) if lines else []
            if problems:
                return problems
    # all is there: what is left is the project, which is built with what was compared
    return run(purpose, [*install, "--no-index", "--no-build-isolation", *arguments], environment)


def hashes_of(constraints: str) -> str:
    """The file with the hashes of the versions in a file."""
    return os.path.join(os.path.dirname(constraints), "hashes", os.path.basename(constraints))


def kind() -> str:
    """What decides which archives of a version pip takes: system, processor, C library and Python."""
    return " ".join((sys.platform, platform.machine(), platform.libc_ver()[0], str(sys.implementation.cache_tag)))


def locked_lines(hashes: str, environment: "dict[str, str]") -> "list[str]":
    """The lines with hashes that are of this kind of machine; none, and a line that says why, if they are not."""
    if not os.path.exists(hashes):
        return []
    with open(hashes, encoding="utf-8") as file:
        lines = file.read().splitlines()
    of = [line[len(FOR) :] for line in lines if line.startswith(FOR)]
    if environment.get(UNCHECKED):
        reason = f"{UNCHECKED}={environment[UNCHECKED]}"
    elif kind() not in of:
        reason = f"its hashes are of '{', '.join(of)}', this is '{kind()}'"
    else:
        return [line for line in lines if line and not line.startswith("#")]
    sys.stderr.write(f"fluvial: archives are not compared with {hashes}: {reason}\n")
    return []


def write_hashes(constraints: str) -> "list[str]":
    """Write the hashes of what pip gets here for each version; a maintainer looks at the difference."""
    with tempfile.TemporaryDirectory() as work:
        report = os.path.join(work, "report.json")
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        command += ["--no-build-isolation", "--report", report, "--requirement", constraints]
        problems = run(f"looking up {constraints}", command, dict(os.environ))
        if problems:
            return problems
        with open(report, encoding="utf-8") as file:
            found = json.load(file)["install"]
    lines = []
    for each in found:
        archive = each["download_info"]
        name = f"{each['metadata']['name']}=={each['metadata']['version']}"
        source = "" if archive["url"].endswith(".whl") else SOURCE
        lines.append(f"{name} --hash=sha256:{archive['archive_info']['hashes']['sha256']}{source}")
    os.makedirs(os.path.dirname(hashes_of(constraints)), exist_ok=True)
    with open(hashes_of(constraints), "w", encoding="utf-8") as file:
        begin = f"# Archives of {os.path.basename(constraints)}. Renew: python -m engine.preflight hashes {constraints}"
        file.write("\n".join([begin, f"{FOR}{kind()}", *sorted(lines, key=str.lower), ""]))
    return []


def component(kind: str, name: str, version: str, algorithm: str, digest: str) -> "dict[str, object]":
    """A package, as CycloneDX has it."""
    hashes = [{"alg": algorithm, "content": digest}]
    return {
        "type": "library", "name": name, "version": version, "purl": f"pkg:{kind}/{name}@{version}", "hashes": hashes
    }  # fmt: skip


def components(root: str) -> "list[dict[str, object]]":
    """What is fetched, by the files with hashes below the project's directory, each once."""
    found = []
    for path in glob.glob(os.path.join(root, "conf", "hashes", "*.txt")):
        with open(path, encoding="utf-8") as file:
            for name, version, digest in re.findall(r"^(\S+)==(\S+) --hash=sha256:(\w+)", file.read(), re.MULTILINE):
                found.append(component("pypi", name.lower().replace("_", "-"), version, "SHA-256", digest))
    for path in glob.glob(os.path.join(root, "conf", "*.lock")) + glob.glob(
        os.path.join(root, "engine", "*", "*.lock")
    ):
        with open(path, encoding="utf-8") as file:
            for digest, name in re.findall(r"^(\w{64}) [ *](\S+)$", file.read(), re.MULTILINE):
                stem, version = (re.match(r"(.+?)-(\d.*)\.\w+$", name) or re.match(r"(.+)()$", name)).groups()  # type: ignore[union-attr]
                found.append(component("generic", stem, version or "0", "SHA-256", digest))
    for path in glob.glob(os.path.join(root, "conf", "*", "package-lock.json")):
        with open(path, encoding="utf-8") as file:
            for place, each in json.load(file)["packages"].items():
                if "integrity" in each:
                    digest = base64.b64decode(each["integrity"].partition("-")[2]).hex()
                    name = place.rpartition("node_modules/")[2]
                    found.append(component("npm", name, each["version"], "SHA-512", digest))
    return [each for _, each in sorted({(str(each["purl"]), str(each["hashes"])): each for each in found}.items())]


def write_sbom(file: str) -> "list[str]":
    """Write the list of what this directory's pins fetch."""
    body = {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1, "components": components(os.getcwd())}
    with open(file, "w", encoding="utf-8") as written:
        json.dump(body, written, indent=1)
    return []


def main(arguments: "list[str]") -> int:
    """Run one command; 0 on success, else 1 with the problems on stderr, or 2 where the network did not answer."""
    command, rest = (arguments[0], arguments[1:]) if arguments else ("check", [])
    if command == "check":
        problems = check()
    elif command == "venv" and len(rest) > 2:
        problems = make_venv(rest[0], rest[1], rest[2:])
    elif command == "hashes" and rest:
        problems = [problem for each in rest for problem in write_hashes(each)]
    elif command == "sbom" and len(rest) == 1:
        problems = write_sbom(rest[0])
    elif command == "run" and len(rest) > 1:
        problems = run(rest[0], rest[1:], dict(os.environ))
    else:
        problems = [f"unknown command: {' '.join(arguments)}; known: check, venv, hashes, sbom, run"]
    for problem in problems:
        sys.stderr.write(f"fluvial: {problem}\n")
    return EXIT_NO_ANSWER if any(NO_ANSWER in problem for problem in problems) else 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
