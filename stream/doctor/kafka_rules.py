"""What `spu-assigner doctor` finds in Kafka, and between Kafka and a checkpoint."""

from __future__ import annotations

from typing import Final

from spu_assigner.stream.doctor.finding import fault, warning

UNREACHABLE: Final = fault(
    "D201",
    "broker-unreachable",
    "no broker can be connected to",
    "Nobody listens there, the name is not known, or something on the way stops it.",
    "check --bootstrap-servers, that the broker runs, and what is between (firewall, DNS)",
)
SILENT: Final = fault(
    "D202",
    "broker-silent",
    "a port is open, and no broker answers on it",
    "It is no Kafka listener, one that asks for another protocol, or a broker that is not up yet.",
    "check the port and SPU_ASSIGNER_SECURITY_PROTOCOL; look into the broker's log",
)
TLS_AUTHORITY: Final = fault(
    "D203",
    "tls-authority",
    "no trusted authority vouches for the broker's certificate",
    "Host names and certificates are always verified; nothing was sent.",
    "put the authority's certificate into SPU_ASSIGNER_SSL_CA_FILE",
)
TLS_HOST: Final = fault(
    "D204",
    "tls-host-name",
    "the broker's certificate is for another host",
    "Host names and certificates are always verified; nothing was sent.",
    "name the broker as its certificate does, or give it a certificate for this name",
)
TLS_EXPIRED: Final = fault(
    "D205",
    "tls-expired",
    "the broker's certificate is out of its time",
    "It has ended, has not begun, or this machine's clock is wrong.",
    "renew the certificate; look at this machine's clock",
)
TLS_NONE: Final = fault(
    "D206",
    "tls-none",
    "the broker does not speak TLS, and the settings ask for it",
    "Mostly it is the port of another listener.",
    "name the listener's port for TLS",
)
TLS_NEEDED: Final = fault(
    "D207",
    "tls-needed",
    "the broker speaks TLS, and the settings do not ask for it",
    "Mostly it is the port of another listener, or the protocol was not set.",
    "set SPU_ASSIGNER_SECURITY_PROTOCOL to SASL_SSL, or SSL",
)
TLS_CLIENT: Final = fault(
    "D208",
    "tls-client",
    "the broker does not take this client's certificate, or asks for one",
    "A listener with `ssl.client.auth` lets nobody in without a certificate that it trusts.",
    "check SPU_ASSIGNER_SSL_CERTIFICATE_FILE and SPU_ASSIGNER_SSL_KEY_FILE",
)
USER_REFUSED: Final = fault(
    "D209",
    "user-refused",
    "the broker does not know this user, or his password is another",
    "A name has a password for each mechanism: one for SCRAM-SHA-256 is none for SCRAM-SHA-512.",
    "check SPU_ASSIGNER_SASL_USERNAME, SPU_ASSIGNER_SASL_PASSWORD and --sasl-mechanism",
)
BROKER_OLD: Final = fault(
    "D210",
    "broker-old",
    "the broker lacks what the product is built on",
    "Each batch is one transaction, and topics are told apart by the ids that Kafka 2.8 gave them.",
    "update the broker; the product is tested with Kafka 4.2",
)
CLOCK: Final = warning(
    "D211",
    "clock-behind",
    "input messages bear the broker's time, and it is later than this machine's",
    "One of the two clocks is wrong. Certificates, retention and what people read off the times "
    "go wrong with it; the order of events does not: that is the broker's alone.",
    "set both clocks by NTP",
)
SOME_UNREACHABLE: Final = warning(
    "D212",
    "some-unreachable",
    "some of the brokers that are named cannot be connected to",
    "The first contact is made with one of them; with fewer there is less to fall back on.",
    "name only brokers that there are, and look whether the others run",
)
PLAIN_NETWORK: Final = warning(
    "D213",
    "not-encrypted",
    "a broker on another machine is spoken to without encryption",
    "Whoever is on the way reads every message, and can change it.",
    "use a listener with TLS: SPU_ASSIGNER_SECURITY_PROTOCOL SASL_SSL, or SSL",
)
BROKER_REFUSES: Final = fault(
    "D214",
    "broker-refuses",
    "the broker answers a question with an error",
    "It lets the client in, and then does not tell what was asked.",
    "look at the error, and into the broker's log",
)

RIGHT_MISSING: Final = fault(
    "D301",
    "right-missing",
    "the user may not do what the role does",
    "Some rights are missed late only: `dead-letter` is written to once a message is bad.",
    "grant what `spu-assigner topics acls` lists",
)
TOPIC_MISSING: Final = fault(
    "D302",
    "topic-missing",
    "a topic is missing",
    "The job refuses to start.",
    "run `spu-assigner topics create`",
)
TOPIC_PARTITIONS: Final = fault(
    "D303",
    "topic-partitions",
    "a topic has another number of partitions than it may",
    "Markers are read back from one place, so their topics have one partition. Kafka cannot take "
    "partitions away.",
    "delete that topic and run `spu-assigner topics create`, or choose another prefix",
)
TOPIC_SETTING: Final = fault(
    "D304",
    "topic-setting",
    "a topic's setting is not what the job relies on",
    "Cleanup policy, the largest message, and for inputs the broker's time are promises that "
    "answers and recovery depend on. The job refuses to start.",
    "run `spu-assigner topics create`, which sets it",
)
TOPIC_OFFLINE: Final = fault(
    "D305",
    "topic-offline",
    "a partition has no leader",
    "Nothing can be read from it or written to it until its broker is back.",
    "start the broker that has its replicas",
)
TOPIC_IN_SYNC: Final = fault(
    "D306",
    "topic-in-sync",
    "a partition has fewer replicas in sync than a write needs",
    "`min.insync.replicas` is larger: Kafka refuses every write to it.",
    "bring its brokers back, or set a smaller min.insync.replicas",
)
TOPIC_TIGHT: Final = warning(
    "D307",
    "topic-tight",
    "a topic needs all its replicas in sync for a write",
    "`min.insync.replicas` is as large as its replication: one broker that restarts stops the job.",
    "set min.insync.replicas to one less than the replicas",
)
TOPIC_SINGLE: Final = warning(
    "D308",
    "topic-one-replica",
    "a topic has one replica on a cluster of several brokers",
    "It is gone with its broker's disk, and away while that broker restarts.",
    "give it three with `kafka-reassign-partitions`",
)
RETENTION: Final = warning(
    "D309",
    "retention-short",
    "an input topic keeps its messages for less than a day",
    "What is deleted before the job read it is lost; the job stops and says so (DataLossError).",
    "set retention.ms to longer than the job ever rests",
)
UNCLEAN: Final = warning(
    "D310",
    "unclean-election",
    "a topic may elect a leader that lacks messages",
    "What was acknowledged can be lost then, answers and markers as well.",
    "set unclean.leader.election.enable to false",
)

FOREIGN: Final = fault(
    "D501",
    "foreign-checkpoint",
    "the last marker in Kafka is of another checkpoint",
    "The checkpoint was deleted or exchanged, or is another query's. Its answers would be given "
    "twice; the job refuses it (ForeignCheckpointError).",
    "go on with the checkpoint that is named, or `spu-assigner recover --checkpoint NEW`, or "
    "choose another query name and topic prefix",
)
MARKER_AHEAD: Final = fault(
    "D502",
    "marker-ahead",
    "the checkpoint is older than the last marker in Kafka",
    "An older copy was brought back; batches would be answered twice, so the job refuses it "
    "(MarkerGapError).",
    "bring back the latest copy, or `spu-assigner recover --checkpoint NEW`",
)
MARKER_BEHIND: Final = fault(
    "D503",
    "marker-behind",
    "the last marker in Kafka is older than the checkpoint, or missing",
    "Outputs were set back or deleted, or broker, prefix or query name are others.",
    "give the job the cluster, prefix and query name it had, or bring back its topics",
)
INPUT_LOST: Final = fault(
    "D504",
    "input-lost",
    "input messages were deleted before the job read them",
    "One of them could be a join, so a gap is never passed over (DataLossError).",
    "give the job a cluster that has them, or accept the loss with `spu-assigner recover "
    "--checkpoint NEW --skip-lost` and have them sent again",
)
INPUT_REPLACED: Final = fault(
    "D505",
    "input-replaced",
    "an input topic is not the one that was read before",
    "It was deleted and made anew, or set back (TopicReplacedError, PartitionsGoneError).",
    "give the job the cluster it had, or `spu-assigner recover --checkpoint NEW --skip-lost`",
)
OTHER_TOPICS: Final = fault(
    "D506",
    "other-topics",
    "the checkpoint has read other topics than the settings name",
    "The topic prefix is another.",
    "give it the topic prefix it had, or name another checkpoint",
)
NEWER_RELEASE: Final = fault(
    "D507",
    "newer-release",
    "the last batch was written by a newer release than is installed",
    "An older release may read neither its state nor its messages, and gives other bytes where the "
    "last batch is repeated.",
    "install that release, or `spu-assigner recover --checkpoint NEW` with this one",
)
REPEATED_OTHERWISE: Final = warning(
    "D508",
    "repeated-otherwise",
    "the last batch is repeated at the start, and was sent by another release or default policy",
    "It must come out the same, byte for byte; else the job stops (DigestMismatchError).",
    "start once with what sent it, and change it when the job has gone on",
)
MARKER_UNREADABLE: Final = fault(
    "D509",
    "marker-unreadable",
    "the last marker in Kafka cannot be read",
    "The job reads it back before it sends anything.",
    "look at what is told of it; somebody else may write into that topic",
)
