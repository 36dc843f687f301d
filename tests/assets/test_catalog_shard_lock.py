"""One run at a time per shard, whoever started it and however it ended."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import NullPool, create_engine, text

from dyna_assets.catalog.shard_lock import shard_lock
from dyna_assets.errors import ShardBusy

HOLD = (
    "import sys, time; from dyna_assets.catalog.shard_lock import shard_lock\n"
    "with shard_lock(sys.argv[1], int(sys.argv[2])): print('held', flush=True); time.sleep(120)"
)


@pytest.fixture
def holder(postgres_url: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds shard 7."""
    command = [sys.executable, "-c", HOLD, postgres_url, "7"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_held_shard_is_refused_after_the_wait_naming_its_holder(
    holder: subprocess.Popen[str], postgres_url: str
) -> None:
    began = time.monotonic()
    expected = rf"shard 7: waited 0\.3 s, still held by 'dyna shard 7 by process {holder.pid} on .*' \(server process"
    with pytest.raises(ShardBusy, match=expected), shard_lock(postgres_url, 7, wait_s=0.3):
        pass
    assert time.monotonic() - began > 0.3


def test_other_shards_are_free(holder: subprocess.Popen[str], postgres_url: str) -> None:
    with shard_lock(postgres_url, 8, wait_s=0.1) as lock:
        lock.verify()


def test_the_lock_of_a_killed_holder_is_free_at_once(
    holder: subprocess.Popen[str], postgres_url: str
) -> None:
    holder.kill()
    holder.wait()
    began = time.monotonic()
    with shard_lock(postgres_url, 7, wait_s=10):
        assert time.monotonic() - began < 5


def test_a_run_that_waits_gets_the_lock_when_the_other_ends(postgres_url: str) -> None:
    order = []

    def second() -> None:
        with shard_lock(postgres_url, 3, wait_s=30):
            order.append("second")

    with shard_lock(postgres_url, 3):
        thread = threading.Thread(target=second)
        thread.start()
        time.sleep(0.2)
        order.append("first")
    thread.join(30)
    assert order == ["first", "second"]


def test_the_lock_is_free_after_an_error_inside(postgres_url: str) -> None:
    with pytest.raises(RuntimeError, match="inside"), shard_lock(postgres_url, 3):
        raise RuntimeError("inside")
    with shard_lock(postgres_url, 3, wait_s=0.5):
        pass


def test_the_loss_of_the_lock_is_noticed(postgres_url: str) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool, isolation_level="AUTOCOMMIT")
    with shard_lock(postgres_url, 3) as lock:
        lock.verify()
        with engine.connect() as connection:
            kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'dyna shard 3 %'"
            connection.execute(text(kill))
        with pytest.raises(ShardBusy, match=r"shard 3: the lock was lost, its database connection broke"):
            lock.verify()


def test_no_transaction_stays_open_while_the_lock_is_held(
    holder: subprocess.Popen[str], postgres_url: str
) -> None:
    engine = create_engine(postgres_url, poolclass=NullPool)
    with engine.connect() as connection:
        query = text("SELECT state FROM pg_stat_activity WHERE application_name LIKE 'dyna shard 7 %'")
        assert connection.scalar(query) == "idle"
