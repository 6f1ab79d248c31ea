"""``fluvial-python``: the Python of a Spark driver whose sessions know the catalogs that their settings name.

Spark loads a catalog by the name of a Java class, so a setting alone cannot bring one in Python. But a setting names
the driver's interpreter: ``spark-submit --conf spark.pyspark.driver.python=fluvial-python job.py`` runs any script, and
``pyspark`` with the same settings is a shell, in which a new session installs the catalogs of its settings.
"""

import logging
import os
import runpy
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from engine.dialect.spark_sql.install import install, installed_names
from lsm.errors import FluvialError, InvalidInputError

_PREFIX: Final = "spark.sql.catalog."
_WAREHOUSE: Final = ".warehouse"
_SHELL: Final = """import os
from engine.dialect.spark_sql import driver_python
driver_python.follow_settings()
if os.environ.get("PYTHONSTARTUP"):
    exec(compile(open(os.environ["PYTHONSTARTUP"]).read(), os.environ["PYTHONSTARTUP"], "exec"))
"""

_logger = logging.getLogger(__name__)


def main() -> None:
    """Entry point of the script ``fluvial-python``. Raises: SystemExit: the arguments are none of a driver's."""
    try:
        run_driver(sys.argv[1:])
    except InvalidInputError as error:
        sys.exit(f"fluvial-python: {error}")


def run_driver(arguments: Sequence[str]) -> None:
    """Run a script as Python does, a module after ``-m``, or without arguments a shell with ``PYTHONSTARTUP``.

    Raises:
        InvalidInputError: another option of Python.
    """
    match arguments:
        case []:
            os.execv(sys.executable, [sys.executable, "-i", "-c", _SHELL])
        case ["-m", module, *_]:
            follow_settings()
            sys.argv = [*arguments[1:]]
            sys.path[0] = os.getcwd()
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        case [script, *_] if not script.startswith("-"):
            follow_settings()
            sys.argv = [*arguments]
            sys.path[0] = str(Path(script).resolve().parent)
            runpy.run_path(script, run_name="__main__")
        case _:
            raise InvalidInputError(
                f"not an option of a driver: arguments={' '.join(arguments)}"
                " fix='a script with its arguments, -m and a module, or nothing for a shell'"
            )


def follow_settings() -> None:
    """From now on each session that is made or got in this process has the catalogs of its settings."""
    plain = SparkSession.Builder.getOrCreate

    def with_catalogs(builder: SparkSession.Builder) -> SparkSession:
        spark = plain(builder)
        _install_configured(spark)
        return spark

    SparkSession.Builder.getOrCreate = with_catalogs


def configured_names(settings: dict[str, Any]) -> list[str]:
    """Catalogs of Fluvial in the settings of a session, by name: with a warehouse, and without a class of Java's."""
    named = [key.removeprefix(_PREFIX).removesuffix(_WAREHOUSE) for key in settings if _is_warehouse(key)]
    return sorted(name for name in named if "." not in name and f"{_PREFIX}{name}" not in settings)


def _is_warehouse(key: str) -> bool:
    return key.startswith(_PREFIX) and key.endswith(_WAREHOUSE)


def _install_configured(spark: SparkSession) -> None:
    """One that cannot be installed is a warning: the session works without it."""
    try:
        names = configured_names(spark.conf.getAll)
        for name in set(names).difference(installed_names(spark) if names else ()):
            install(spark, name=name)
    except FluvialError as error:
        _logger.warning("no catalog of Fluvial in this session: %s", error)
