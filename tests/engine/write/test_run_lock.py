"""One run of a checkpoint: a second one is refused at its start, or waits; a dead one holds nothing."""

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from engine.checkpoint.checkpoint_files import read_checkpoint
from engine.cli.app import run_command
from engine.runtime.spark_messages import fluvial_error
from engine.write import run_lock
from engine.write.run_lock import LOCK_FILE, held_checkpoints, hold_checkpoint, release_checkpoint
from lsm.errors import InvalidInputError, TakenOverError
from tests.support.checkpoint_holder import holder


def test_a_second_run_is_refused_at_its_start_and_learns_who_holds_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one that is paused holds it; one that was killed does not, whatever the clocks say."""
    checkpoint = tmp_path / "checkpoint"
    job = tmp_path / "job.yaml"
    job.write_text(
        f"name: one\nwarehouse: {tmp_path}/lake\nlog: {{system: none}}\n"
        "tables: {db.t: {columns: {id: BIGINT}, primary_key: [id]}}\n"
        "pipelines: [{name: p, source: {format: rate}, transform: SELECT value AS id FROM source, target: db.t,"
        f" checkpoint: {checkpoint}}}]\n"
    )
    other = holder(checkpoint)
    for pause in (None, signal.SIGSTOP):
        if pause is not None:
            other.send_signal(pause)
        assert run_command(["run", str(job)]) == 2
        said = capsys.readouterr().err
        assert f"another run has this checkpoint: checkpoint={checkpoint}" in said
        assert f"pid={other.pid} age=" in said
        assert "--wait" in said
    assert read_checkpoint(str(checkpoint)) is None  # it is no query's yet, and empty but for the lock
    other.kill()
    other.wait()
    with held_checkpoints([str(checkpoint)]) as is_held:
        assert is_held


def test_a_run_may_wait_for_another_one(tmp_path: Path) -> None:
    """Until it ends, or until this one is asked to stop."""
    other = holder(tmp_path)
    stop = threading.Event()
    threading.Timer(0.7, stop.set).start()
    with held_checkpoints([str(tmp_path)], waits=True, stop=stop) as is_held:
        assert not is_held
    threading.Timer(0.7, other.kill).start()
    with held_checkpoints([str(tmp_path)], waits=True) as is_held:
        assert is_held
    other.wait()


def test_a_run_holds_all_of_its_checkpoints_or_none(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a"), f"file://{tmp_path}/b"
    with (
        held_checkpoints([second]),
        pytest.raises(InvalidInputError, match="another run"),
        held_checkpoints([first, second]),
    ):
        pass
    with held_checkpoints([first, second, "s3://bucket/elsewhere"]) as is_held:  # no lock there: tables refuse it
        assert is_held
    assert (tmp_path / "b" / LOCK_FILE).exists()


def test_a_query_of_a_program_holds_its_checkpoint_until_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against other processes; a newer query of the process has it instead, a run's block keeps it."""
    monkeypatch.setattr(run_lock, "_ENDED_S", 0.0)
    location = f"file:{tmp_path}"
    other = holder(tmp_path)
    with pytest.raises(InvalidInputError, match=rf"another run has this checkpoint: .* pid={other.pid} age="):
        hold_checkpoint(location, "run-1")
    other.kill()
    other.wait()
    assert [hold_checkpoint(location, each) for each in ("run-1", "run-1", "run-2")] == [True, False, True]
    release_checkpoint(location, "run-1")
    with pytest.raises(InvalidInputError, match=f"pid={os.getpid()}"), held_checkpoints([str(tmp_path)]):
        pass
    release_checkpoint(location, "run-2")
    with held_checkpoints([str(tmp_path)]):
        assert not hold_checkpoint(location, "run-3")
        release_checkpoint(location, "run-3")
        with pytest.raises(InvalidInputError, match="another run"), held_checkpoints([str(tmp_path)]):
            pass
    other = holder(tmp_path)  # it is free
    other.kill()
    other.wait()


def test_a_child_that_outlives_its_process_holds_nothing(tmp_path: Path) -> None:
    script = """
import os, sys, time
from engine.write.run_lock import hold_checkpoint
assert hold_checkpoint(sys.argv[1], "run")
child = os.fork()
if not child:
    os.closerange(0, 3)
    time.sleep(60)
print(child, flush=True)
os._exit(0)
"""
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, check=True, text=True)
    try:
        with held_checkpoints([str(tmp_path)]) as is_held:
            assert is_held
    finally:
        os.kill(int(done.stdout), signal.SIGKILL)


@pytest.mark.parametrize(
    "text",
    [
        "[CONCURRENT_STREAM_LOG_UPDATE] Concurrent update to the log. Multiple streaming jobs detected for 7.",
        "java.lang.AssertionError: Multiple streaming queries are concurrently using file:/c/offsets",
        "[CONCURRENT_QUERY] Another instance of this query was just started by a concurrent session.",
    ],
)
def test_sparks_own_error_is_that_another_run_has_taken_over(text: str) -> None:
    """No restart heals it, see ``restart_after``."""
    assert isinstance(fluvial_error(RuntimeError(text), "pipeline failed: pipeline=p"), TakenOverError)
