"""The archive of classes with which tests start Spark serves several workers at once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.class_archive import ARCHIVE

SUBMIT = Path(sys.prefix) / f"lib/python3.{sys.version_info.minor}/site-packages/pyspark/bin/spark-submit"


@pytest.mark.long
@pytest.mark.spark
def test_two_jvms_that_start_at_once_both_map_it(tmp_path: Path) -> None:
    logs = [tmp_path / f"{number}.log" for number in range(2)]
    started = []
    for log in logs:
        options = f"-XX:SharedArchiveFile={ARCHIVE} -Xshare:auto -Xlog:cds=info:file={log}"
        environment = {**os.environ, "SPARK_SUBMIT_OPTS": options}
        started.append(subprocess.Popen([SUBMIT, "--version"], env=environment, stderr=subprocess.DEVNULL))
    assert [each.wait(60) for each in started] == [0, 0]
    for log in logs:
        assert "Mapped dynamic region" in log.read_text(), "make it again: rm .venv/spark-classes.jsa && make test"
