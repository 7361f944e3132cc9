"""Spark sessions: the job's, and one for a command that only looks at a checkpoint's files."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.common.private_files import private_files
from spu_assigner.stream.job.checkpoint.files import absolute, is_local, is_on_s3
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.local.jvm import spark_class_archive
from spu_assigner.stream.local.jvm.jars import EXTENSION, Group, ensure_all
from spu_assigner.stream.local.jvm.java import Java, ensure_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL_MASTER: Final = "local[*,4]"  # all cores; a task is tried four times, as on a cluster
LOOPBACK: Final = "127.0.0.1"
BROADCAST_BUFFER: Final = "spark.broadcast.blockSize"
_LOCAL_FILES: Final = "com.globalmentor.apache.hadoop.fs.BareLocalFileSystem"
_PLAIN_CHECKPOINT_FILES: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_OBJECT_STORE_FILES: Final = "io.spuassigner.spark.ObjectStoreFiles"
# One JVM for tasks and planning on few cores, for months.
JVM: Final = (
    # It answers a backlog as fast as the parallel one, and keeps the heap near what lives.
    "-XX:+UseSerialGC",
    # Else the young generation takes a third of all memory that is permitted, and the heap begins
    # with a 64th of the machine's. The old one never has less than it begins with.
    "-Xms112m",
    "-XX:NewSize=32m",
    "-XX:MaxNewSize=32m",
    "-XX:MinHeapFreeRatio=10",
    "-XX:MaxHeapFreeRatio=20",
    "-XX:-ShrinkHeapInSteps",  # else several collections of all are needed for it
    "-XX:MetaspaceSize=64m",
    # What C code has freed, up to 70 MiB after a backlog, goes back to the system each minute. Java
    # 17 knows the option since 17.0.9.
    "-XX:+IgnoreUnrecognizedVMOptions",
    "-XX:TrimNativeHeapInterval=60000",
    # An archive of classes is mapped to where it was made for. Elsewhere, the default of late
    # releases of Java 17, all of its pages are rewritten at a start: 130 MiB that are held.
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:ArchiveRelocationMode=0",
)
# For what ends within minutes: the fast compiler alone. Of a job that runs for longer, the thorough
# one's code gives back what its threads take.
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1"
S3_ENDPOINT: Final = "AWS_ENDPOINT_URL"  # Spark reads it, with AWS_ACCESS_KEY_ID and the others
METRICS_NAMESPACE: Final = "spu_assigner"
_PROMETHEUS: Final = "org.apache.spark.metrics.sink.PrometheusServlet"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class SessionError(AssignerError):
    """Spark could not be started."""


Jars = Mapping[Group, Sequence[Path]]  # that Spark is given; always with "spark-local"


def ensure_jars(checkpoint: str, *, reads_kafka: bool = True) -> Jars:
    """The jars for a session that uses this checkpoint; those for S3 only where it is on S3."""
    groups: list[Group] = ["spark-local"]
    groups += ["spark-kafka"] if reads_kafka else []
    groups += ["spark-s3"] if is_on_s3(checkpoint) else []
    return ensure_all(groups)


def jars_option(jars: Jars) -> str:
    """What Spark's `--jars`, or `spark.jars`, is given of them."""
    return ",".join(map(str, [*jars.get("spark-kafka", ()), EXTENSION, *jars.get("spark-s3", ())]))


def build_session(
    settings: Settings,
    *,
    java: Java | None,
    jars: Jars | None,
    jvm_options: Sequence[str] | None = None,
    short_lived: bool = False,
) -> SparkSession:
    """A session with every option written out; without Java and jars, in spark-submit's JVM."""
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    _import_converters()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers' interpreter: this one
    submitted = None
    if java is None:
        SparkContext._ensure_initialized()  # else SparkConf lacks spark-submit's options
        submitted = SparkConf().get("spark.master")
    master = settings.master or submitted or LOCAL_MASTER
    if java is not None:
        os.environ["JAVA_HOME"] = str(java.home)  # PySpark starts the JVM from here
        if master.startswith("local"):
            # Where its UI listens, which has no authentication; another address in the environment
            # is meant for Spark clusters.
            os.environ["SPARK_LOCAL_IP"] = LOOPBACK
    builder = SparkSession.builder.appName(settings.query_name).master(master)
    options = {**session_options(settings), **_place_options(settings, master, jars)}
    if is_on_s3(settings.checkpoint):
        options |= s3_options(is_brief=short_lived)
    if master.startswith("local") and java is not None and jars is not None:
        if jvm_options is None:
            jvm_options = spark_class_archive.jvm_options(java, jars["spark-local"])
        if short_lived:
            jvm_options = [*jvm_options, SHORT_LIVED]
        options["spark.driver.extraJavaOptions"] = " ".join([*JVM, *jvm_options])
    for name, value in options.items():
        builder = builder.config(name, value)
    with private_files():  # The JVM and its workers inherit it: their files, and their sockets.
        session = builder.getOrCreate()
    if options.get("spark.hadoop.fs.file.impl") == _LOCAL_FILES:
        jvm: Any = session.sparkContext._jvm
        jvm.io.spuassigner.spark.HadoopDefaults.remove(session.sparkContext._jsc.sc())
    return session


def _import_converters() -> None:
    """Import what PySpark does at the first call into the JVM, without pandas, Arrow and NumPy.

    A module for tests is asked whether there is NumPy, and imports all three: 90 MiB and
    half a second of each start, for nothing that the job uses. They can be imported afterwards.
    """
    heavy = [name for name in ("numpy", "pandas", "pyarrow") if name not in sys.modules]
    with ExitStack() as stack:
        for name in heavy:
            sys.modules[name] = None  # type: ignore[assignment]  # "is not there" for `import`
            stack.callback(sys.modules.pop, name)
        stack.enter_context(suppress(ImportError))  # of a PySpark that asks elsewhere
        import pyspark.testing.utils  # noqa: F401


def session_options(settings: Settings) -> dict[str, str]:
    """What the job needs wherever it runs."""
    return {
        # State: RocksDB with a changelog, so that a batch uploads what it changed and no more.
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.compression.codec": "lz4",
        # A checkpoint can be resumed with its own format only, and format 2 ends the query after
        # some 830 batches without a snapshot (docs/decisions/state.md).
        "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
        # Only the last two batches are ever gone back to; the rest is for looking at.
        "spark.sql.streaming.minBatchesToRetain": "20",
        # Nothing waits for time to pass, so a batch without events has nothing to do.
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        # Between triggers without news; the source itself waits for events (`source`).
        "spark.sql.streaming.pollingDelay": "1ms",
        "spark.sql.streaming.stopActiveRunOnRestart": "false",
        # A batch's rows pass through the driver partition by partition; their sum is no limit.
        "spark.driver.maxResultSize": "0",
        # Of the buffer of each broadcast: a batch's are some 50 KiB. By default 4 MiB.
        BROADCAST_BUFFER: "64k",
        # Of what a task sorts. By default one of 32 MiB, for which alone the heap is collected.
        "spark.buffer.pageSize": "1m",
        # Spark would write Java for the projections of each task: a third of a small batch's time.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        # An idle job does not fill the old generation, which holds what a busy time has left. A
        # collection takes some 0.25 s; by default each half hour.
        "spark.cleaner.periodicGC.interval": "2min",
        # A job that runs for months: what its UI remembers is bounded.
        "spark.ui.retainedJobs": "100",
        "spark.ui.retainedStages": "200",
        "spark.ui.retainedTasks": "2000",
        "spark.sql.ui.retainedExecutions": "50",
        "spark.ui.enabled": "true" if settings.ui_port else "false",
        "spark.ui.port": str(settings.ui_port),
        "spark.ui.showConsoleProgress": "false",
        # Spark's own metrics, beside its UI; named alike in each run.
        "spark.metrics.namespace": METRICS_NAMESPACE,
        "spark.metrics.conf.*.sink.prometheusServlet.class": _PROMETHEUS,
        "spark.metrics.conf.*.sink.prometheusServlet.path": "/metrics/prometheus",
        "spark.ui.prometheus.enabled": "true",  # /metrics/executors/prometheus
        "spark.sql.streaming.metricsEnabled": "true",
        "spark.ui.killEnabled": "false",  # it has no users: to look at, not to act
        "spark.log.level": settings.log_level,
    }


def _place_options(settings: Settings, master: str, jars: Jars | None) -> dict[str, str]:
    """What depends on where it runs."""
    place = absolute(settings.checkpoint)
    options: dict[str, str] = {}
    if jars is not None:
        options["spark.jars"] = jars_option(jars)
        options["spark.driver.memory"] = settings.driver_memory
    if not master.startswith("local"):
        return options
    options["spark.driver.host"] = options["spark.driver.bindAddress"] = LOOPBACK
    if not master.startswith("local-cluster"):
        # The driver's own ports are open to every user of the machine: Spark makes a secret for
        # itself, but none that executors of their own would share.
        options["spark.authenticate"] = "true"
    if jars is None:
        return options
    # The archive of Spark's classes is of a class path that begins with these.
    local = os.pathsep.join(map(str, jars["spark-local"]))
    options |= {"spark.driver.extraClassPath": local, "spark.executor.extraClassPath": local}
    if is_local(place):
        # Hadoop's own local files start a process for each file made (chmod): half of a small
        # batch's time.
        options |= {
            "spark.hadoop.fs.file.impl": _LOCAL_FILES,
            "spark.hadoop.fs.permissions.umask-mode": "077",
            "spark.sql.streaming.checkpointFileManagerClass": _PLAIN_CHECKPOINT_FILES,
        }
    return options


def s3_options(*, is_brief: bool) -> dict[str, str]:
    """What a checkpoint on S3 needs."""
    options = {
        "spark.sql.streaming.checkpointFileManagerClass": _OBJECT_STORE_FILES,
        # Hadoop's default one is for columns of large files, and needs more of Amazon's SDK.
        "spark.hadoop.fs.s3a.input.stream.type": "classic",
        # No requests for what other file systems promise: that a path's parents are folders, that
        # a folder outlives its last file.
        "spark.hadoop.fs.s3a.performance.flags": "create,delete,mkdir",
    }
    if is_brief:  # Hadoop waits for minutes for a store that does not answer; a person does not.
        options["spark.hadoop.fs.s3a.attempts.maximum"] = "2"
        options["spark.hadoop.fs.s3a.retry.limit"] = "2"
    if os.environ.get(S3_ENDPOINT):
        # A server of one's own has one name, and not one for each bucket as Amazon has.
        options["spark.hadoop.fs.s3a.path.style.access"] = "true"
    return options


@contextmanager
def command_session(
    given: SparkSession | None, place: str, *, application: str
) -> Iterator[SparkSession]:
    """The given session, else the active one, else one of its own that ends with the block."""
    from pyspark.sql import SparkSession

    base = given or SparkSession.getActiveSession()
    if base is not None:
        yield base
        return
    own = start_command_session(place, application=application)
    try:
        yield own
    finally:
        own.stop()


def start_command_session(place: str, *, application: str) -> SparkSession:
    """A session for a command that looks at this checkpoint."""
    flags = {"checkpoint": place, "ui_port": "0", "query_name": application}
    settings = Settings.load(flags=flags)
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # spark-submit has started the JVM, with its jars.
        return build_session(settings, java=None, jars=None)
    java, jars = ensure_java(), ensure_jars(place, reads_kafka=False)
    with tempfile.TemporaryFile() as said, stderr_to(said):
        try:
            # Here, whatever master the job has: what is read goes to this process alone.
            settings = replace(settings, master="local[*]")
            return build_session(settings, java=java, jars=jars, short_lived=True)
        except Exception as reason:
            said.seek(0)
            lines = said.read().decode(errors="replace").strip().splitlines()
            raise SessionError(
                f"Spark could not be started: {[str(reason), *lines][-1]}; "
                "`spu-assigner doctor` checks Java, jars and ports"
            ) from reason


@contextmanager
def stderr_to(file: IO[bytes]) -> Iterator[None]:
    """Give processes that are started meanwhile, a JVM above all, a file for what they say."""
    saved = os.dup(2)
    sys.stderr.flush()
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(saved, 2)
        os.close(saved)
