"""Which interpreter Spark's Python workers run, for sessions that this process starts."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pyspark

from engine.runtime import stream_worker

LAUNCHER: Final = str(Path(stream_worker.__file__).with_name("worker-python"))
"""Starts ``FLUVIAL_WORKER_PYTHON``; see there."""

_INTERPRETER: Final = "FLUVIAL_WORKER_PYTHON"
_KEYS: Final = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
_MASTER: Final = "spark.master"


def set_worker_python(given: Mapping[str, str]) -> None:
    """Name the interpreter of workers in this process's environment, which the JVM inherits; what is named, stays.

    Workers run the interpreter of this process: else they run whatever ``python3`` is on the PATH. On a local master
    they are started by `LAUNCHER`; executors on other machines may not have it.

    Args:
        given: the settings of the session.
    """
    is_launched = os.access(LAUNCHER, os.X_OK) and is_local(given)
    if is_launched:
        os.environ[_INTERPRETER] = sys.executable
    for key in _KEYS:
        named = os.environ.get(key)
        if named in (None, sys.executable, LAUNCHER):  # the latter two: by an earlier session
            os.environ[key] = LAUNCHER if is_launched else sys.executable


def is_local(given: Mapping[str, str]) -> bool:
    """Whether a session will run in this machine alone, as far as can be seen before the JVM starts.

    Args:
        given: its settings; without a master, defaults files and the arguments of spark-submit may name another one.
    """
    if _MASTER in given:
        return given[_MASTER].startswith("local") and not given[_MASTER].startswith("local-cluster")
    environment = os.environ
    if not environment.keys().isdisjoint({"PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "MASTER", "SPARK_REMOTE"}):
        return False
    home = environment.get("SPARK_HOME", os.path.dirname(pyspark.__file__))
    return not Path(environment.get("SPARK_CONF_DIR", f"{home}/conf"), "spark-defaults.conf").exists()
