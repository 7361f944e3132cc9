"""What the whole product shows to the other users of its machine, and to the network."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.job.programs import running
from support.kafka.sockets import answer_to, family, listeners, listening_files

START_SECONDS_MAX = 180.0  # it takes 15 s on two idle cores

# What a shared machine may say, and a careless mask: the product is to be private all the same.
_ENVIRON = {"SPARK_LOCAL_IP": "0.0.0.0"}
_OPEN_MASK = ["sh", "-c", 'umask 000; unset KAFKA_BOOTSTRAP_SERVERS; exec "$@"', "sh"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """`spu-assigner run` with a broker of its own, all of it up and used."""

    process: subprocess.Popen[bytes]
    home: Path
    temporary: Path  # where the JVM and the workers keep what they need meanwhile
    said: Path

    def processes(self) -> dict[int, str]:
        return family(self.process.pid)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    folder = tmp_path_factory.mktemp("listeners")
    # Not under pytest's: a socket's path is at most 108 bytes.
    temporary = Path(tempfile.mkdtemp(prefix="spu-"))
    temporary.chmod(0o1777)
    command = [sys.executable, "-m", "spu_assigner.stream.cli", "run", "--demo"]
    home, said = folder / "home", folder / "said"
    environ = {
        **_ENVIRON,
        "TMPDIR": str(temporary),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}",
    }
    with running([*_OPEN_MASK, *command, "--data", str(home)], said, environ) as process:
        deadline = time.monotonic() + START_SECONDS_MAX
        while "Ctrl-C ends it" not in said.read_text(encoding="utf-8"):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield Product(process=process, home=home, temporary=temporary, said=said)
    shutil.rmtree(temporary)


def test_every_port_is_on_the_loopback(product: Product) -> None:
    """Spark's UI, its driver and its blocks, both ways between Python and Java, broker, quorum."""
    processes = product.processes()
    found = listeners(processes)
    elsewhere = [each for each in found if not each.is_loopback]
    assert elsewhere == []
    owners = {
        next(name for name in ("kafka.Kafka", "SparkSubmit", "stream.cli") if name in line)
        for line in (processes[each.process] for each in found)
    }
    assert owners == {"kafka.Kafka", "SparkSubmit", "stream.cli"}
    assert len(found) >= 7


def test_sockets_in_the_file_system_are_for_this_user_alone(product: Product) -> None:
    """A shard server decides what such a socket sends it: no other user may speak into it."""
    # One whose file is gone already, as Spark removes some, can be reached by nobody.
    sockets = [path for path in listening_files(product.processes()) if path.exists()]
    assert sockets  # of shard servers
    open_to_others = [
        path
        for path in sockets
        if path.stat().st_mode & 0o077 and path.parent.stat().st_mode & 0o077
    ]
    assert open_to_others == []


def test_no_port_between_python_and_java_answers_a_stranger(product: Product) -> None:
    """Py4J's success is `!y`; without its token nobody gets one, in either direction."""
    call = b"c\np0\ncall\nsevil\ne\n"  # the sink, as the JVM calls it
    create = b"i\njava.lang.Object\ne\n"  # an object in the JVM, as this process makes one
    ports = [
        each.port
        for each in listeners(
            number for number, line in product.processes().items() if "kafka.Kafka" not in line
        )
    ]
    assert len(ports) >= 5
    answers = {port: (answer_to(port, call), answer_to(port, create)) for port in ports}
    assert [
        port for port, replies in answers.items() if any(b"!y" in each for each in replies)
    ] == []
    assert product.process.poll() is None


def test_what_it_keeps_is_for_this_user_alone(product: Product) -> None:
    """Checkpoint, broker, logs, and what Spark and its workers keep in temporary folders."""
    for name in ("checkpoint", "broker"):
        assert (product.home / name).stat().st_mode & 0o777 == 0o700
    assert (product.home / "spark.log").stat().st_mode & 0o777 == 0o600
    open_to_others = {
        str(path): oct(path.stat().st_mode & 0o777)
        for place in (product.home, product.temporary)
        for path in place.iterdir()
        if path.stat().st_mode & 0o077
    }
    assert open_to_others == {}
    assert any(product.temporary.iterdir())


def test_the_ui_lets_nobody_act(product: Product) -> None:
    """It asks nobody who he is, so that it must be for looking only; so must the driver's ports."""
    said = product.said.read_text(encoding="utf-8")
    url = next(line.split()[-1] for line in said.splitlines() if line.startswith("Spark UI"))
    with urllib.request.urlopen(f"{url}/api/v1/applications", timeout=30) as answer:
        (application,) = json.load(answer)
    place = f"{url}/api/v1/applications/{application['id']}/environment"
    with urllib.request.urlopen(place, timeout=30) as answer:
        properties = dict(json.load(answer)["sparkProperties"])
    assert properties["spark.ui.killEnabled"] == "false"
    assert properties["spark.authenticate"] == "true"
