"""A real Kafka cluster on one machine: KRaft controllers, mostly one, and a broker for each rack.

Each is a process of its own, made from the embedded broker's parts; a folder that is removed at the
end holds their data and logs. A broker that was killed is fenced within SESSION_MS.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, ClusterMetadata
from kafka.admin import KafkaAdminClient
from spu_assigner.stream.common.private_files import private_folder
from spu_assigner.stream.local.broker.embedded import BrokerError, format_data, new_cluster_id
from spu_assigner.stream.local.broker.process import HOST, BrokerProcess, Ports
from spu_assigner.stream.local.jvm.jars import ensure
from spu_assigner.stream.local.jvm.java import ensure_java
from support.kafka.ports import START_TRIES_MAX, free_ports, is_taken
from support.kafka.secured import PLAIN_PASSWORD
from support.project.jars_lock import broker_jars

CONTROLLER_ID = 100
RACKS = ("a", "b", "c")
HEAP_MB = 384  # at most: a broker with a thousand topics uses half of it
CONTROLLER_HEAP_MB = 256
SESSION_MS = 9_000  # Kafka's own: a broker that the machine lets wait is not to be fenced
SEEN_SECONDS_MAX = 240.0  # a broker comes and goes in 1 to 10 s; a machine under load needs more
TWO_REPLICAS = {  # of everything, so that two brokers can hold it
    "default.replication.factor": "2",
    "min.insync.replicas": "1",
    "offsets.topic.replication.factor": "2",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "2",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "6",
}
_POLL_SECONDS = 0.05
_ANSWER_SECONDS_MAX = 5.0
_BY_ADDRESS = -1  # stands for a broker whose id the client did not know yet


class KafkaCluster:
    """Brokers 1 … n, one in each of the racks, and their controllers, from CONTROLLER_ID on.

    Args:
        racks: the brokers' `broker.rack`, in the order of their ids; None for a broker without.
        controllers: how many; of three one may be away.
        settings: further lines of every `server.properties`.
        users: who may log in beside the plain listener, each with PLAIN_PASSWORD; there they have
            the rights alone that they are given. On the plain one everybody may do everything.
        version: of Kafka, one of KAFKAS; None: the embedded broker's.
    """

    def __init__(
        self,
        racks: Sequence[str | None] = RACKS,
        *,
        controllers: int = 1,
        settings: Mapping[str, str] | None = None,
        users: Iterable[str] = (),
        version: str | None = None,
    ) -> None:
        self._version = version
        self._users = tuple(users)
        self._user_servers: list[str] = []
        self.racks = dict(enumerate(racks, 1))
        self._controller_ids = range(CONTROLLER_ID, CONTROLLER_ID + controllers)
        self._settings = dict(settings or {})
        self._folder: Path | None = None
        self._brokers: dict[int, BrokerProcess] = {}
        self._controllers: dict[int, BrokerProcess] = {}
        self._running: set[int] = set()  # the brokers that are to run

    @property
    def ids(self) -> tuple[int, ...]:
        """All brokers, the stopped ones too."""
        return tuple(self.racks)

    @property
    def running(self) -> tuple[int, ...]:
        return tuple(sorted(self._running))

    @property
    def bootstrap_servers(self) -> str:
        """All brokers' addresses; the same after a restart."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    def environ(self, user: str) -> dict[str, str]:
        """What a user of the listener with passwords puts into his environment."""
        return {
            "KAFKA_BOOTSTRAP_SERVERS": ",".join(self._user_servers),
            "SPU_ASSIGNER_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "SPU_ASSIGNER_SASL_MECHANISM": "PLAIN",
            "SPU_ASSIGNER_SASL_USERNAME": user,
            "SPU_ASSIGNER_SASL_PASSWORD": PLAIN_PASSWORD,
        }

    @property
    def client(self) -> dict[str, str | int]:
        """Settings for confluent-kafka."""
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 0}

    def start(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed; back when it is in the metadata."""
        self._brokers[broker_id].start()
        self._running.add(broker_id)
        self.wait_seen()

    def stop(self, broker_id: int) -> None:
        """End a broker cleanly: it hands over what it leads; back when it is not seen any more."""
        self._end(broker_id, self._brokers[broker_id].stop)

    def kill(self, broker_id: int) -> None:
        """End a broker as a crash would; back when the controller has fenced it."""
        self._end(broker_id, self._brokers[broker_id].kill)

    @contextmanager
    def stopped(self, broker_id: int) -> Iterator[None]:
        """A broker is stopped inside, and runs again afterwards."""
        self.stop(broker_id)
        try:
            yield
        finally:
            self.start(broker_id)

    @contextmanager
    def active_controller_killed(self) -> Iterator[int]:
        """The controller that leads the others is killed; inside, another one leads: its id."""
        before = self.active_controller()
        self._controllers[before].kill()
        try:
            deadline = time.monotonic() + SEEN_SECONDS_MAX
            while (now := self.active_controller()) == before:
                assert time.monotonic() < deadline, f"no other controller leads instead of {before}"
                time.sleep(_POLL_SECONDS)
            yield now
        finally:
            self._controllers[before].start()
            self.wait_seen()

    def active_controller(self) -> int:
        """The controller that leads, as a broker reports."""
        client = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers.split(","))
        try:
            found = client.describe_metadata_quorum()
        finally:
            client.close()
        [topic] = found["topics"]
        return int(topic["partitions"][0]["leader_id"])

    def seen(self) -> dict[int, str | None]:
        """The brokers that the cluster reports to its clients, with their racks; by id."""
        with AdminClient(self.client) as admin:
            nodes = admin.describe_cluster().result(timeout=10).nodes
            return {node.id: node.rack for node in sorted(nodes, key=lambda node: node.id)}

    def reported_by(self, broker_id: int) -> ClusterMetadata | None:
        """What a broker reports of brokers and topics by itself; None if it does not answer. A
        client soon knows all brokers and asks any: what another one has reported does not count."""
        address = self._brokers[broker_id].bootstrap_servers
        deadline = time.monotonic() + _ANSWER_SECONDS_MAX
        while (left := deadline - time.monotonic()) > 0:
            settings = {"bootstrap.servers": address, "log_level": 0}
            with AdminClient(settings) as admin, suppress(KafkaException):
                found = admin.list_topics(timeout=left)
                if found.orig_broker_id in (_BY_ADDRESS, broker_id):
                    return found
        return None

    def wait_seen(self) -> None:
        """Wait until every running broker reports the running brokers, and no other."""
        expected = self.running
        deadline = time.monotonic() + SEEN_SECONDS_MAX
        while any((found := self._seen_by(each)) != expected for each in expected):
            nodes = [*self._controllers.values(), *(self._brokers[each] for each in expected)]
            if not all(node.is_running for node in nodes):
                raise BrokerError(f"a process has ended by itself; logs are in {self._folder}")
            if time.monotonic() > deadline:
                raise BrokerError(
                    f"after {SEEN_SECONDS_MAX:.0f} s a broker reports {list(found)}, expected "
                    f"{list(expected)}; logs are in {self._folder}"
                )
            time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        """End all and remove their data, as nobody needs it any more."""
        for process in (*self._brokers.values(), *self._controllers.values()):
            process.kill()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
        self._brokers, self._controllers, self._folder = {}, {}, None
        self._running.clear()

    def __enter__(self) -> Self:
        """Start all, about 4 s on two cores, and wait until each broker is in the metadata."""
        for tries in range(1, START_TRIES_MAX + 1):
            self._prepare()
            try:
                # The controllers first: without them a broker waits before it says anything.
                with ThreadPoolExecutor() as pool:
                    for nodes in (self._controllers, self._brokers):
                        list(pool.map(lambda node: node.start(), nodes.values()))
                self._running = set(self._brokers)
                self.wait_seen()
                break
            except BaseException as reason:  # Ctrl-C too: no process may be left behind.
                self.close()
                if tries == START_TRIES_MAX or not is_taken(reason):
                    raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _prepare(self) -> None:
        java = ensure_java()
        jars = broker_jars(self._version) if self._version else ensure("broker")
        self._folder = folder = Path(tempfile.mkdtemp(prefix="spu-assigner-cluster-"))
        free = free_ports(len(self._controller_ids) + 2 * len(self.racks))
        voters = dict(zip(self._controller_ids, free, strict=False))
        ports = free[len(voters) : len(voters) + len(self.racks)]
        of_users = free[-len(self.racks) :] if self._users else [0] * len(self.racks)
        self._user_servers = [f"{HOST}:{port}" for port in of_users]
        common = {
            **_replication(len(self.racks)),
            "controller.quorum.voters": ",".join(
                f"{controller_id}@{HOST}:{port}" for controller_id, port in voters.items()
            ),
            "broker.session.timeout.ms": str(SESSION_MS),
            **(_authorizing(self._users) if self._users else {}),
            **self._settings,
        }

        def process(
            role: str, node_id: int, listeners: str, ports: Ports, rack: str | None = None
        ) -> BrokerProcess:
            return BrokerProcess(
                java=java,
                jars=jars,
                folder=folder / f"{role}-{node_id}",
                ports=ports,
                heap_mb=HEAP_MB if role == "broker" else CONTROLLER_HEAP_MB,
                settings={
                    "process.roles": role,
                    "node.id": str(node_id),
                    "listeners": listeners,
                    "advertised.listeners": listeners,
                    **({} if rack is None else {"broker.rack": rack}),
                    **common,
                },
            )

        for controller_id, port in voters.items():
            listener = f"CONTROLLER://{HOST}:{port}"
            self._controllers[controller_id] = process(
                "controller", controller_id, listener, Ports(client=port, controller=port)
            )
        for (broker_id, rack), port, of_users_port in zip(
            self.racks.items(), ports, of_users, strict=True
        ):
            for_users = f",SASL_PLAINTEXT://{HOST}:{of_users_port}" if self._users else ""
            self._brokers[broker_id] = process(
                "broker",
                broker_id,
                f"PLAINTEXT://{HOST}:{port}{for_users}",
                Ports(client=port, controller=voters[CONTROLLER_ID]),
                rack,
            )
        cluster_id = new_cluster_id()
        for node_id, node in {**self._controllers, **self._brokers}.items():
            private_folder(node.folder)
            if self._version:  # Its features are others than the embedded broker's.
                tool = ("kafka.tools.StorageTool", "format", "-t", cluster_id)
                command = node.java_command(*tool, "-c", str(node.write_settings()))
                subprocess.run(command, check=True, capture_output=True)
            else:
                format_data(node.data, cluster_id=cluster_id, node_id=node_id)

    def _end(self, broker_id: int, how: Callable[[], None]) -> None:
        self._running.discard(broker_id)
        how()
        self.wait_seen()

    def _seen_by(self, broker_id: int) -> tuple[int, ...]:
        """The brokers that one of them reports; none while it does not answer."""
        found = self.reported_by(broker_id)
        return () if found is None else tuple(sorted(found.brokers))


def _replication(brokers: int) -> dict[str, str]:
    """Each replica on a broker of its own, and one of three may be away."""
    replicas, in_sync = str(min(3, brokers)), str(2 if brokers > 2 else 1)
    return {
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _authorizing(users: Iterable[str]) -> dict[str, str]:
    known = " ".join(f'user_{name}="{PLAIN_PASSWORD}"' for name in users)
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": "org.apache.kafka.common.security."
        f"plain.PlainLoginModule required {known};",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
