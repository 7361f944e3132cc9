"""Whether the input topics of a running query are still those that it began with.

Spark keeps offsets only: a topic that is recreated while the job stands still, and has grown past
the old offsets when it wakes, is read from there as if it were the old one. So the ids are compared
before each commit, after all that the batch has read; and by the watch every few seconds, since a
new topic that is short makes no batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from confluent_kafka import KafkaException
from spu_assigner.stream.job.checkpoint.data_loss import require_same_topics
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.retry import RETRY_SECONDS_MAX, ask_leaders
from spu_assigner.stream.kafka.topic_ids import ask_topic_ids

_FIRST_SECONDS: Final = 3.0  # after them other brokers are asked


class InputIdentity:
    """Asks Kafka for the ids of the input topics.

    Args:
        ids: by topic, as the checkpoint has noted them; none of a broker that gives none.
    """

    def __init__(self, settings: Settings, ids: Mapping[str, str]) -> None:
        self.ids = dict(sorted(ids.items()))
        self._admin = DiagnosedAdmin(settings.connection().client()) if ids else None

    def ask(self) -> Callable[[], None]:
        """Ask now; what is returned waits for the answer.

        Raises:
            TopicReplacedError: by what is returned: a topic has another id.
            TopicsError: likewise: a topic is missing.
            KafkaException: likewise: no broker answers.
        """
        if (admin := self._admin) is None:
            return lambda: None
        answer = ask_topic_ids(admin, self.ids, seconds=_FIRST_SECONDS)

        def settle() -> None:
            try:
                found = answer()
            except KafkaException:  # Of several brokers another one may answer.
                found = ask_leaders(
                    admin,
                    lambda left: ask_topic_ids(admin, self.ids, seconds=left)(),
                    seconds=RETRY_SECONDS_MAX,
                )
            require_same_topics(self.ids, found)

        return settle

    def close(self) -> None:
        """Close the client."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
