"""The embedded broker: a real Kafka that comes, serves, goes, and leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from spu_assigner.stream.local.broker.embedded import (
    BOOTSTRAP,
    BrokerError,
    EmbeddedBroker,
    new_cluster_id,
)
from support.kafka.reading import committed
from support.kafka.shared_broker import SharedBroker

_QUIET = {"log_level": 0}
_CHILD = """
import sys, time
from pathlib import Path
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
broker = EmbeddedBroker(Path(sys.argv[1])).start()
print(broker.pid, flush=True)
time.sleep(600)
"""


def _send(broker: SharedBroker, topic: str, value: bytes) -> None:
    client = {"bootstrap.servers": broker.bootstrap_servers, **_QUIET}
    with AdminClient(client) as admin:
        [made] = admin.create_topics([NewTopic(topic, 1)]).values()
        with suppress(KafkaException):  # It is there.
            made.result(timeout=60)
    producer = Producer({**client, "transactional.id": topic})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(topic, value)
    producer.commit_transaction(60)


def _read(broker: SharedBroker, topic: str) -> list[bytes | None]:
    return [message.value() for message in committed(broker.bootstrap_servers, topic)]


def _is_alive(pid: int) -> bool:
    """Whether the process runs; one that ended and waits for its parent does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def _gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _is_alive(pid)


def _cluster_id(servers: str) -> str:
    with AdminClient({"bootstrap.servers": servers, **_QUIET}) as admin:
        return str(admin.list_topics(timeout=60).cluster_id)


def test_records_outlive_a_stop_and_a_crash_on_the_same_address(tmp_path: Path) -> None:
    """A job is restarted on the broker it knew, with the records it was promised."""
    with EmbeddedBroker(tmp_path) as broker:
        address = broker.bootstrap_servers
        _send(broker, "kept", b"one")
        broker.stop()
        broker.start()
        _send(broker, "kept", b"two")
        broker.kill()
        assert not broker.is_running
        broker.start()
        assert broker.bootstrap_servers == address
        assert _read(broker, "kept") == [b"one", b"two"]
    with EmbeddedBroker(tmp_path) as again:
        assert again.bootstrap_servers == address
        assert _read(again, "kept") == [b"one", b"two"]


@pytest.mark.smoke
def test_a_stop_is_clean_and_leaves_nothing_behind(kafka: SharedBroker) -> None:
    """No process, no folder: the next start need not recover, and the disk does not fill.

    Another one from the same image is another cluster. Ctrl-C goes to the terminal's session.
    """
    broker = EmbeddedBroker().start()
    pid, log = broker.pid, broker.log_path
    assert pid is not None
    assert os.getsid(pid) != os.getsid(0)
    assert _cluster_id(broker.bootstrap_servers) != _cluster_id(kafka.bootstrap_servers)
    broker.stop()
    assert not _is_alive(pid)
    assert (log.parent / "data" / ".kafka_cleanshutdown").exists()
    broker.close()
    assert not log.parent.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_the_broker_ends_when_its_parent_is_ended(number: signal.Signals, tmp_path: Path) -> None:
    """However the product dies, no broker may keep the port, the folder and the memory."""
    command = [sys.executable, "-c", _CHILD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert _is_alive(pid)
        parent.send_signal(number)
        parent.wait(60)
    assert _gone_within(pid, 60)  # A stop that is too slow is killed after STOP_SECONDS_MAX.


@pytest.mark.smoke
def test_the_broker_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    """The process between the product and the broker is no weak link."""
    if sys.platform != "linux":
        pytest.skip("the kernel's parent-death signal is Linux's")
    with EmbeddedBroker(tmp_path) as broker:
        pid = broker.pid
        assert pid is not None
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
        supervisor = int(stat.rsplit(")", 1)[1].split()[1])
        assert supervisor != os.getpid()
        os.kill(supervisor, signal.SIGKILL)
        assert _gone_within(pid, 60)


def test_a_taken_port_is_named(kafka: SharedBroker, tmp_path: Path) -> None:
    """The error says what is wrong with the port that the user chose."""
    port = int(kafka.bootstrap_servers.split(":")[1])
    with pytest.raises(BrokerError, match=f"port {port} of 127.0.0.1 is taken"):
        EmbeddedBroker(tmp_path, port=port).start()


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    """Two brokers on one folder would destroy it."""
    with (
        EmbeddedBroker(tmp_path) as first,
        pytest.raises(BrokerError, match=f"another broker runs on {tmp_path}; stop it"),
    ):
        EmbeddedBroker(tmp_path).start()
    assert not first.is_running


def test_settings_that_kafka_refuses_end_the_start_with_its_reason(tmp_path: Path) -> None:
    """One line that says why, instead of a wait for a broker that never comes."""
    broker = EmbeddedBroker(tmp_path, settings={"num.network.threads": "none"})
    with pytest.raises(BrokerError, match=r"num\.network\.threads.*its log is .*broker\.log"):
        broker.start()
    assert not broker.is_running


def test_a_new_data_folder_begins_as_kafkas_storage_tool_makes_it(tmp_path: Path) -> None:
    """The stored file enables the features that the broker's release has; of a newer Kafka, store
    the file that its tool has written."""
    broker = EmbeddedBroker(tmp_path)
    options = ["--cluster-id", new_cluster_id(), "--config", str(broker.write_settings())]
    tool = broker.java_command("kafka.tools.StorageTool", "format", *options)
    subprocess.run(tool, check=True, capture_output=True)

    def features(file: Path) -> list[bytes]:
        """Names and levels, without checksums and times."""
        return re.findall(rb"[a-z.]+\.version\0..", file.read_bytes(), re.DOTALL)

    made = broker.data / BOOTSTRAP.name
    assert len(features(made)) >= 6
    assert features(BOOTSTRAP) == features(made)
    assert BOOTSTRAP.stat().st_size == made.stat().st_size
