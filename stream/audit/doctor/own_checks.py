"""`spu-assigner doctor`: the job's start checks as a person needs them, and what they leave out."""

from __future__ import annotations

import time
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.audit.doctor.look import DoctorLook, NotCheckedError
from spu_assigner.stream.common.printable import counted
from spu_assigner.stream.common.release import RELEASE
from spu_assigner.stream.job.checkpoint.files import SparkFiles, batches_in, is_local, is_on_s3
from spu_assigner.stream.job.marker_check import require_next
from spu_assigner.stream.job.session import start_command_session
from spu_assigner.stream.job.start_checks import CHECKPOINT, INPUT, KAFKA, StartLook, make
from spu_assigner.stream.kafka.acls import ANY_TOPIC, Resource, Role, acls
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.errors import CREATE_TOPICS, TopicsError
from spu_assigner.stream.kafka.open_transactions import ENDING, held_inputs
from spu_assigner.stream.kafka.topic_admin import require_access
from spu_assigner.stream.kafka.topics import ASSIGNER_COMMITS, TOPICS, topic_name
from spu_assigner.stream.local.jvm.jars import Group, require_jars

APPLICATION: Final = "spu-assigner-doctor"
HELD_SECONDS: Final = 1.0  # a batch, or a producer's transaction, has ended by then


def look_at_settings(look: DoctorLook) -> str:
    """Whether they can be used."""
    if look.settings_fault is not None:
        look.current.add("D001", str(look.settings_fault), f"correct {look.settings_fault.source}")
        raise NotCheckedError("the settings cannot be used")
    settings = look.start.settings
    return f"query {settings.query_name!r}, topic prefix {settings.topic_prefix!r}"


def look_at_jars(look: DoctorLook) -> str:
    """Whether the locked jars are there; a start would fetch those that are missing."""
    groups: list[Group] = ["spark-kafka", "spark-local"]
    if not look.is_broker_named:  # `run` starts a broker of its own then.
        groups.append("broker")
    if is_on_s3(look.start.settings.checkpoint):
        groups.append("spark-s3")
    require_jars(groups, look.start.environ)
    return f"those of {', '.join(groups)} are as the lock says"


def look_at_kafka(look: DoctorLook) -> str:
    """As the job does; of another role, whether it has its rights, and its topics are there."""
    if not look.is_broker_named:
        raise NotCheckedError(
            "no broker is named (--bootstrap-servers); `run` starts one of its own then"
        )
    if look.role is Role.JOB:
        return make(KAFKA, look.start)
    connection, role = look.start.settings.connection(), look.role
    prefix = connection.prefix
    wanted = acls(role, prefix=prefix, with_optional=False)
    of_apply = {topic_name(spec.name, prefix=prefix) for spec in TOPICS if spec.is_applys}
    names = {acl.name for acl in wanted if acl.resource is Resource.TOPIC} - {ANY_TOPIC}
    with DiagnosedAdmin(connection.client()) as admin:
        present = admin.metadata(look.start.limits).topics
        require_access(admin, role, prefix=prefix)
    if missing := sorted(names - of_apply - {*present}):  # The first `apply` creates its own.
        raise TopicsError(f"missing {', '.join(missing)}; {CREATE_TOPICS}")
    return f"those of {role} on {counted(len(names), 'topic')}"


def look_at_checkpoint(look: DoctorLook) -> str:
    """As the job does, with Spark where only Spark can read: its session stays open for others."""
    start = look.start
    if is_on_s3(start.place):
        try:
            require_jars(["spark-local", "spark-s3"], start.environ)
            start.files = SparkFiles(start_command_session(start.place, application=APPLICATION))
        except AssignerError as reason:
            raise NotCheckedError(f"only Spark can read {start.place}: {reason}") from reason
    elif not is_local(start.place):
        raise NotCheckedError(f"the checkpoint is at {start.place}, where only Spark can read")
    found = make(CHECKPOINT, start)
    look.batch_next = _batch_next(start)
    if start.checkpoint.shards is None:
        return found
    newest = max(batches_in(start.files, f"{start.place}/offsets"), default=-1)
    return f"{start.place}, batch {newest} in {counted(start.shards, 'shard')}"


def _batch_next(start: StartLook) -> int:
    """The batch that the next start begins with: one that has not ended, or the one after all."""
    newest = max(batches_in(start.files, f"{start.place}/offsets"), default=-1)
    return newest + (newest < 0 or newest in batches_in(start.files, f"{start.place}/commits"))


def look_at_batches(look: DoctorLook) -> str:
    """Whether the checkpoint goes on where the last marker is; a job may run meanwhile. The sink
    finds out at its first batch, which may come late."""
    start, marker = look.start, look.start.marker
    settings, batch = start.settings, look.batch_next
    # The marker was read after the checkpoint, and is not newer than what the checkpoint is now.
    now = _batch_next(start)
    if marker is None or not batch - 1 <= marker.batch <= now:
        topic = topic_name(ASSIGNER_COMMITS, prefix=settings.topic_prefix)
        require_next(batch, marker, query=settings.query_name, topic=topic)
        return "nothing was sent yet"
    policy = settings.default_policy.value
    is_same = (marker.release, marker.default_policy) == (RELEASE, policy)
    if marker.batch == batch == now and not is_same:
        look.current.add(
            "D508",
            f"batch {batch} is repeated; it was sent with release {marker.release} and default "
            f"policy {marker.default_policy}, now {RELEASE} and {policy}",
        )
    return f"the next batch is {batch}"


def look_at_input(look: DoctorLook) -> str:
    """As the job does; and what an open transaction keeps from being read."""
    connection = look.start.settings.connection()
    if held := held_inputs(connection):
        time.sleep(HELD_SECONDS)
        for each in {*held} & {*held_inputs(connection)}:
            look.current.add("D511", str(each), ENDING)
    return make(INPUT, look.start)
