"""What all tests share: marks by folder, a real Kafka broker, a topic prefix of each test's own."""

from __future__ import annotations

import gc
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from spu_assigner import core
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job import session as job_session
from spu_assigner.stream.job.session import build_session
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.broker.embedded import EmbeddedBroker
from spu_assigner.stream.local.jvm.jars import ensure_all
from spu_assigner.stream.local.jvm.java import Java, ensure_java
from support.kafka.kafka_cluster import KafkaCluster
from support.kafka.shared_broker import SharedBroker
from support.project.case_share import share_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_ROOT = Path(__file__).parent
# A job that waits for events asks Kafka every 10 ms, which takes half a core of itself and the
# broker, and many wait here side by side. Not by SPARK_CONF_DIR: it is a part of the class path,
# and with another one Spark's archive of classes is passed over. Nor does a job live long enough
# here for the thorough compiler's code to give back what its threads take.
_SPARK_OPTIONS = (
    "--conf spark.sql.streaming.pollingDelay=100ms"
    f" --conf spark.driver.defaultJavaOptions={job_session.SHORT_LIVED} pyspark-shell"
)
_MARKED_FOLDERS = ("bench", "broker", "docker", "fuzz", "installed", "spark")
_numbers = itertools.count(1)

# No test depends on how fast the machine is. The rest is as Hypothesis has it, in CI its own.
settings.register_profile(
    "any-speed",
    settings(max_examples=share_of(settings().max_examples)),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-speed")

os.environ.setdefault("PYSPARK_SUBMIT_ARGS", _SPARK_OPTIONS)

# What a script starts in the background ignores Ctrl-C, and so would all programs that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    """What changes files of the project is done when it is asked for."""
    parser.addoption(
        "--write-pictures", action="store_true", help="keep the pictures of the documentation"
    )


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark a test by its folder, so that no test of a heavy folder slips into the quick run.

    Of heavy folders a file is one group, which one worker runs; all tests of the three brokers are
    one, since they live until the end of the run. Groups come first and are dealt out one by one,
    so that the many quick tests even out the workers at the end.
    """
    for item in items:
        path = item.path.relative_to(_ROOT)
        if path.parts[0] in _MARKED_FOLDERS:
            item.add_marker(path.parts[0])
            is_cluster = "kafka_cluster" in getattr(item, "fixturenames", ())
            item.add_marker(pytest.mark.xdist_group("three brokers" if is_cluster else str(path)))
    items.sort(key=_place)


def pytest_collection_finish() -> None:
    """What is imported by now stays: it need not be looked through at each collection."""
    gc.collect()
    gc.freeze()


def _place(item: pytest.Item) -> int:
    """First those of the three brokers, which are one large group; then groups, then others."""
    if item.path.relative_to(_ROOT).parts[0] not in _MARKED_FOLDERS:
        return 2
    return 0 if "kafka_cluster" in getattr(item, "fixturenames", ()) else 1


@pytest.fixture(scope="session", autouse=True)
def admin_clients_are_closed() -> Iterator[None]:
    """No test leaves an admin client open: made first, this looks when all else is gone."""
    yield
    if "confluent_kafka" in sys.modules:
        from support.kafka.kafka_threads import open_admin_clients

        left = open_admin_clients()
        assert not left, f"open at the end of the run: {left}"


@pytest.fixture(scope="session")
def kafka() -> Iterator[SharedBroker]:
    """A running broker, one for the whole run; a test must leave it up."""
    with ExitStack() as stack:
        try:
            broker = stack.enter_context(EmbeddedBroker())
        except AssignerError as reason:
            if os.environ.get("CI"):
                raise  # Where all must be tested, a missing broker is a failure.
            pytest.skip(f"no broker can be had: {reason}")
        yield broker


def pytest_configure(config: pytest.Config) -> None:
    """Prepare what the summary says, and refuse to test another product than the one named."""
    is_checkout = Path(core.__file__ or "").resolve().is_relative_to(_ROOT.parent / "core")
    if os.environ.get("SPU_ASSIGNER_TEST_PRODUCT") == "wheel" and is_checkout:
        raise pytest.UsageError(
            f"spu_assigner.core is {core.__file__}, a file of the checkout; expected that of the "
            "installed wheel: unset PYTHONPATH, or run `make setup`"
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which product and which Spark it was."""
    product = Path(core.__file__ or "").parents[1]
    terminalreporter.write_line(f"product of the tests: {product}; Spark {version('pyspark')}")


@pytest.fixture(scope="session")
def kafka_cluster() -> Iterator[KafkaCluster]:
    """Three running brokers in racks a, b and c, one cluster for the whole run.

    A test must leave all three up: `with kafka_cluster.stopped(2)` does.
    """
    with ExitStack() as stack:
        try:
            cluster = stack.enter_context(KafkaCluster())
        except AssignerError as reason:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no cluster can be had: {reason}")
        yield cluster


@pytest.fixture(scope="session")
def java() -> Iterator[Java]:
    """The Java to run Spark on, also said to Spark: its Python workers are this interpreter."""
    try:
        found = ensure_java()
    except AssignerError as reason:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(reason))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(found.home))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        yield found


@pytest.fixture(scope="session")
def spark_jvm(java: Java, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Start this process's JVM with the job's jars, for a test that makes a session of its own.

    A process has one JVM, whose class path its first session fixes: a plain session before a job
    would leave the job without Spark's Kafka source.
    """
    jars = ensure_all(["spark-kafka", "spark-local"])
    flags = {"checkpoint": str(tmp_path_factory.mktemp("jvm")), "ui_port": 0, "master": "local[1]"}
    build_session(Settings.load(flags=flags, environ={}), java=java, jars=jars).stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A headless Chromium, one for the whole run; a test opens pages of its own and closes them."""
    from support.pages.browser import open_browser

    with ExitStack() as stack:
        try:
            opened = stack.enter_context(open_browser())
        except (OSError, subprocess.SubprocessError) as reason:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no browser can be had: {reason}")
        yield opened


@pytest.fixture
def topic_prefix() -> str:
    """A prefix that no other test of this run uses."""
    return f"test-{next(_numbers)}."
