"""One pass of a command that follows: what Kafka has against what the job has gives events.

`follow` makes a pass at each look, and `adopt` one. What was adopted is recorded in
`applied-topics` as found, so that `plan` and `apply` know it: it grows with its map, moves are
written for it, and no command deletes it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from confluent_kafka import Message
from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import SpuJoined, TopicAdopted
from spu_assigner.core.base.records import ReplicaMap, Status, TopicStatus
from spu_assigner.core.base.resources import BYTES
from spu_assigner.schemas.messages.wire import Origin
from spu_assigner.stream.client.announced import AnnouncedOfCluster, LabelsOfBrokers
from spu_assigner.stream.clusters.follow.brokers import (
    MembershipDecision,
    Sightings,
    decide_brokers,
)
from spu_assigner.stream.clusters.follow.labels_file import read_labels
from spu_assigner.stream.clusters.follow.options import FollowOptions
from spu_assigner.stream.clusters.follow.report import FollowOutput
from spu_assigner.stream.clusters.follow.topic_facts import FoundTopic, TopicFacts, TopicMemory
from spu_assigner.stream.clusters.follow.topics import TopicsDecision, decide_topics
from spu_assigner.stream.clusters.follow.watched import WatchedCluster
from spu_assigner.stream.clusters.plan.applied import AppliedRecords, record_of
from spu_assigner.stream.clusters.plan.applied_store import AppliedLedger
from spu_assigner.stream.clusters.plan.model import TopicReason
from spu_assigner.stream.clusters.plan.sources import wanted_of
from spu_assigner.stream.common.printable import counted, listed
from spu_assigner.stream.common.quantities import now_ms
from spu_assigner.stream.job.shard.clusters import output_key
from spu_assigner.stream.job.shard.published import checked_record
from spu_assigner.stream.kafka.acls import Role
from spu_assigner.stream.kafka.client import Reader
from spu_assigner.stream.kafka.config.connection import Connection
from spu_assigner.stream.kafka.config.settings import TARGET_SERVERS_VARIABLE
from spu_assigner.stream.kafka.errors import granting
from spu_assigner.stream.kafka.log_dirs import read_unseen, topic_bytes
from spu_assigner.stream.kafka.topics import (
    APPLIED_TOPICS,
    ASSIGNER_STATE,
    REPLICA_MAP,
    SPU_EVENTS,
    TOPIC_STATUS,
    topic_name,
)


class FollowError(AssignerError):
    """Following cannot go on, and trying again would not help."""


def require_cluster(known: AnnouncedOfCluster, kafka_cluster: str) -> None:
    """Return if the cluster's SPUs are, or may become, brokers of this Kafka cluster."""
    announced, mine = known.by_spu(), known.cluster_id
    followed = {each.kafka_cluster for each in announced.values() if each.kafka_cluster}
    if others := sorted(followed - {kafka_cluster}):
        raise FollowError(
            f"SPUs of cluster {mine!r} are brokers of Kafka cluster {others[0]}, and this is "
            f"{kafka_cluster}; check its address ({TARGET_SERVERS_VARIABLE}), or say "
            "--accept-cluster if they are to be those of this one now"
        )
    if not announced and (of := known.clusters_of(kafka_cluster)):
        raise FollowError(
            f"cluster {mine!r} has no SPUs, and the brokers of Kafka cluster {kafka_cluster} are "
            f"SPUs of cluster {listed([repr(each) for each in of])}; check --cluster, or say "
            "--accept-cluster if they are to be SPUs of both"
        )


class AnnouncedReader:
    """Reads what was announced of a cluster's SPUs, and goes on reading."""

    def __init__(
        self, connection: Connection, cluster_id: str, *, has_topics: bool = False
    ) -> None:
        """Read all that there is."""
        self.maps: dict[str, ReplicaMap] = {}  # of living topics
        self.version = 0  # rises when maps have changed
        self._own = f"{cluster_id}/".encode()
        with ExitStack() as opened:
            topics = [SPU_EVENTS, REPLICA_MAP] if has_topics else [SPU_EVENTS]
            self._reader = opened.enter_context(Reader(connection, topics, from_beginning=True))
            self.announced = AnnouncedOfCluster(cluster_id)
            # Once: what becomes of SPUs later is in their events.
            with Reader(connection, [ASSIGNER_STATE], from_beginning=True) as state:
                for _, message in state.drain_messages():
                    self.announced.take_state(message)
            self.catch_up()
            self._opened = opened.pop_all()

    def catch_up(self) -> None:
        """Read what has come since."""
        latest: dict[bytes, Message] = {}
        for topic, message in self._reader.drain_messages():
            if topic == SPU_EVENTS:
                self.announced.take_event(message)
            elif (key := message.key() or b"").startswith(self._own):
                latest[key] = message
        for key, message in latest.items():
            record = checked_record(message, ReplicaMap, output_key)
            self.maps.pop(key.removeprefix(self._own).decode(), None)
            if record is not None and record.replicas is not None:
                self.maps[record.topic] = record
        self.version += bool(latest)

    def close(self) -> None:
        """End the clients."""
        self._opened.close()


class FollowSession:
    """What a command knows, of a follower from winning the election to losing it."""

    def __init__(
        self,
        events: Connection,
        watched: WatchedCluster,
        options: FollowOptions,
        output: FollowOutput,
    ) -> None:
        self._watched = watched
        self._target = events.to_target(watched.connection)
        self._records = topic_name(APPLIED_TOPICS, prefix=events.prefix)
        self._options = options
        self._output = output
        self._labels: LabelsOfBrokers = {}  # of the file, as it was last without fault
        self._memory = TopicMemory()
        self._found: Mapping[str, FoundTopic] = {}  # at the last look
        self._applied = AppliedRecords()
        self._version = -1  # of the maps when the records were read
        self._spus: frozenset[int] = frozenset()  # that were announced at the last look
        self._statuses: Reader | None = None  # `adopt` waits for the answers
        has_topics = bool(options.globs)
        with ExitStack() as opened:
            self.reader = AnnouncedReader(events, options.cluster_id, has_topics=has_topics)
            opened.callback(self.reader.close)
            if not options.accept_cluster:
                require_cluster(self.reader.announced, options.kafka_cluster)
            if has_topics and not options.is_adopt:
                self._statuses = opened.enter_context(Reader(events, [TOPIC_STATUS]))
            self._opened = opened.pop_all()

    def close(self) -> None:
        """End the clients."""
        self._opened.close()

    def decide_brokers(self, sight: Sightings) -> MembershipDecision:
        """Which brokers join and leave."""
        if (file := self._options.labels_file) is not None:
            labels, faults = read_labels(file)
            self._labels = self._labels if faults else labels
            ignored = (f"{each}; what was read before stays in force" for each in faults)
            self._output.report("labels", *ignored)
        self.reader.catch_up()
        announced = self.reader.announced.by_spu()
        return decide_brokers(announced, sight, self._options, self._labels, occurred_at=now_ms())

    def decide_topics(self, joins: Sequence[SpuJoined] = ()) -> TopicsDecision:
        """Look at topics, and decide what is sent about them after these joins."""
        before, self._found = self._found, self._watched.topics(self._options.is_meant)
        self.reader.catch_up()
        # What `apply` made is known before its map may be deleted: it must not be adopted then.
        if self.reader.version != self._version or self._found != before:
            self._version, self._applied = self.reader.version, self._ledger().read()
        for received in () if self._statuses is None else self._statuses.drain():
            answer = received.answer
            if isinstance(answer, TopicStatus) and answer.status is Status.REJECTED:
                self._memory.reject(answer.cause, f"{answer.message} ({answer.code})")
        announced = self.reader.announced.by_spu()
        known = [each.described for each in announced.values() if each.online and each.described]
        has_disks = any(BYTES in each.resources for each in known) or any(
            BYTES in (join.resources or {}) for join in joins
        )
        spus = frozenset((*announced, *(join.spu_id for join in joins)))
        if not spus <= self._spus:
            self._memory.retry()
        self._spus = spus
        decision = decide_topics(
            TopicFacts(found=self._found, maps=self.reader.maps, applied=self._applied, spus=spus),
            self._options,
            self._memory,
            occurred_at=now_ms(),
            untouched=self._watched.untouched,
            bytes_of=self._bytes_of if has_disks else lambda _: {},
        )
        lost = decision.gone if self._options.is_adopt else [x.topic for x in decision.released]
        if lost:
            self._watched.target.look(lost)  # Raises if this user may not see them.
        return decision

    def hidden(self) -> list[TopicReason]:
        """The topics on brokers that this user may not see, so that they are not adopted."""
        unseen = read_unseen(self._target).summary
        for line in replace(unseen, topics=()).lines("they are not adopted"):
            self._output.say(f"warning: {line}")
        why = f"is on brokers, and you may not see it; {granting(Role.ADOPTER)}"
        return [
            TopicReason(topic=name, reason=why)
            for name in unseen.topics
            if self._options.is_meant(name)
        ]

    def changed(self, adopted: Iterable[TopicAdopted]) -> list[TopicReason]:
        """Look again; the topics that others have changed since they were adopted."""
        self._found = self._watched.topics(self._options.is_meant)
        self.reader.catch_up()
        changed = []
        for event in adopted:
            now = self._found.get(event.topic)
            if now is None:
                why = "was deleted while it was adopted; run this again with --forget-gone"
            elif now.reassigned or now.rows != event.replicas:
                why = "was changed by others while it was adopted; run this again"
            else:
                continue
            changed.append(TopicReason(topic=event.topic, reason=why))
        return changed

    def partitions_ahead(self) -> int | None:
        """The partitions not in Kafka as mapped; None: topics are not looked at."""
        maps = {x: wanted_of(y) for x, y in self.reader.maps.items() if self._options.is_meant(x)}
        return self._watched.cluster.partitions_ahead(maps) if self._options.globs else None

    def record_followed(self, decision: TopicsDecision) -> None:
        """Record what was adopted, and forget what was released, once the maps show it.

        What was adopted on a leaving SPU is mapped otherwise by now, and recorded all the same.
        """
        adopted = self._memory.adopted
        changed = (each.topic for each in decision.pending if each.topic in adopted)
        self.record([*decision.equal, *changed], self._memory.released)

    def record(self, found: Collection[str], released: Iterable[str]) -> None:
        """Record these topics as found, and forget those that were released."""
        cluster = self._watched.cluster

        def unknown(applied: AppliedRecords) -> list[str]:
            return [
                name
                for name in found
                if name in cluster.ids
                and name not in applied.intents
                and not applied.is_known(name, cluster.ids[name])
            ]

        there = {*self.reader.maps, *cluster.topics}
        gone = [each for each in released if each in self._applied.records and each not in there]
        if not (unknown(self._applied) or gone):
            return
        ledger = self._ledger()
        # Read again: an `apply` that runs now records what it makes itself.
        of, ids = self._options.cluster_id, cluster.ids
        records = [
            record_of(of, name, Origin.FOUND, topic_id=ids[name], rows=cluster.rows(name) or ())
            for name in unknown(ledger.read())
        ]
        ledger.record(records)
        ledger.forget(gone)
        self._applied = ledger.read()

    def move(self, decision: TopicsDecision) -> None:
        """Have Kafka move new topics, which are empty, to where they were placed."""
        kafka = self._watched.reassigner
        refused = kafka.reassign(decision.moves) if decision.moves else {}
        self._output.report(
            "moves",
            *(f"does not move {topic}-{at} now: {why}" for (topic, at), why in refused.items()),
        )
        for name in decision.moved:
            kafka.elect((name, at) for at in range(len(self._found[name].rows)))
            self._output.say(f"has moved topic {name} to where the job placed it")

    def _ledger(self) -> AppliedLedger:
        is_there = self._records in self._watched.cluster.topics
        return AppliedLedger(self._target, self._options.cluster_id, is_there=is_there)

    def _bytes_of(self, topics: Sequence[str]) -> Mapping[str, int]:
        """The bytes of one copy of each topic; `adopt` says which are not known."""
        asked = {name: len(self._found[name].rows) for name in topics}
        sizes = topic_bytes(self._target, asked) if asked else {}
        if self._options.is_adopt and (unsized := sorted(asked.keys() - sizes)):
            self._output.say(
                f"warning: the bytes of {counted(len(unsized), 'topic')} are not known "
                f"({listed(unsized)}): all brokers must run, and this user may Describe the "
                f"cluster (role {Role.ADOPTER}); what they need of {BYTES} stays as it is known"
            )
        return sizes
