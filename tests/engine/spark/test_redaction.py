"""What Spark itself shows of options and settings: plans, its event log."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine.spark.session import REDACTED
from tests.filestore.options.test_declarations import HIDDEN, SHOWN

SECRET = "LEAKME"
SCRIPT = """
import sys
from urllib.request import urlopen
from engine.spark.session import session
home, secret = sys.argv[1:]
spark = session(master="local[1]", conf={
    "spark.eventLog.enabled": "true", "spark.eventLog.compress": "false", "spark.eventLog.dir": f"file://{home}",
    "spark.ui.enabled": "true", "spark.ui.port": "0",
    "spark.hadoop.fs.azure.account.key.x": secret, "spark.x.sasl.jaas.config": secret,
})
options = {
    "kafka.bootstrap.servers": "localhost:1", "subscribe": "x", "value.format": "raw", "kafka.sasl.password": secret,
    "kafka.ssl.key.pem": secret, "schema.registry.basic.auth.user.info": f"u:{secret}",
    "kafka.sasl.oauthbearer.config": f"pw={secret}", "kafka.client.id": f"http://u:{secret}@h",
}
spark.readStream.format("fluvial-kafka").options(**options).load().explain(True)
spark.range(3).write.format("noop").options(**options).mode("append").save()
ui, application = spark.sparkContext.uiWebUrl, f"api/v1/applications/{spark.sparkContext.applicationId}"
for page in ("environment/", "SQL/", "SQL/execution/?id=0", f"{application}/environment", f"{application}/sql"):
    print(f"page {page}:", urlopen(f"{ui}/{page}", timeout=30).read().decode())
spark.stop()
"""


@pytest.mark.parametrize("key", HIDDEN)
def test_spark_hides_what_is_hidden_elsewhere(key: str) -> None:
    if key != "monkey":
        assert re.search(REDACTED, key)


@pytest.mark.parametrize("key", [key for key in SHOWN if "access" not in key and "token" not in key])
def test_spark_shows_what_is_shown_elsewhere(key: str) -> None:
    assert not re.search(REDACTED, key)


@pytest.mark.spark
@pytest.mark.sweep
def test_neither_plans_nor_the_event_log_nor_the_ui_show_a_secret(tmp_path: Path) -> None:
    """In a session of its own: the event log and the UI are settings of the context."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path), SECRET]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "kafka.ssl.key.pem=*" in done.stdout
    assert [done.stdout.count(f"page {page}") for page in ("environment/", "SQL/:", "SQL/execution", "api/")] == [
        1,
        1,
        1,
        2,
    ]
    assert "spark.x.sasl.jaas.config" in done.stdout
    events = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert "SparkListenerSQLExecutionStart" in events
    assert [line for line in (done.stdout + done.stderr + events).splitlines() if SECRET in line] == []
