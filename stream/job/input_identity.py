"""Whether the input topics of a running query are still those that it began with.

Spark keeps offsets only: a topic that is recreated while the job stands still, and has grown past
the old offsets when it wakes, is read from there as if it were the old one. So the ids are compared
after all that a batch has read, before it is sent; and by the watch every few seconds, since a new
topic that is short makes no batch.
"""

from __future__ import annotations

from collections.abc import Mapping

from spu_assigner.stream.job.checkpoint.inputs import require_same_ids, undescribed
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.connection_diagnosis import DiagnosedAdmin
from spu_assigner.stream.kafka.retry import RETRY_SECONDS_MAX, ask_leaders
from spu_assigner.stream.kafka.topic_ids import ask_topic_ids


class InputIdentity:
    """Asks Kafka for the ids of the input topics."""

    def __init__(self, settings: Settings, ids: Mapping[str, str]) -> None:
        self.ids = dict(sorted(ids.items()))
        self._admin = DiagnosedAdmin(settings.connection().client()) if ids else None

    def check(self) -> None:
        """Raise TopicReplacedError or TopicsError unless Kafka has the same topics."""
        if (admin := self._admin) is not None:
            found = ask_leaders(
                admin,
                lambda left: ask_topic_ids(admin, self.ids, seconds=left)(),
                seconds=RETRY_SECONDS_MAX,
            )
            require_same_ids(self.ids, found)
            if missing := sorted(self.ids.keys() - found):
                raise undescribed(missing, "the broker does not know them")

    def close(self) -> None:
        """Close the client."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()
