"""Names of topics that Kafka does not permit beside each other: `a.b` and `a_b`.

In the names of its metrics dots are underscores, so it refuses to create the second of such topics.
One of two that collide has a dot, so those with dots are kept; the other may be any that is there.
"""

from __future__ import annotations

from collections.abc import Container


class TopicNames:
    """Those of the topics of a cluster that are there or wait, both of which are its caller's."""

    def __init__(self, topics: Container[str], waiting: Container[str]) -> None:
        self._topics = topics
        self._waiting = waiting
        self._dotted: dict[str, str] = {}  # by what it is without dots

    def add(self, topic: str) -> None:
        """A topic is there, or waits."""
        if "." in topic:
            self._dotted[_plain(topic)] = topic

    def discard(self, topic: str) -> None:
        """A topic is there no more, or waits no more; it may still do the other."""
        if "." in topic and not self._has(topic):
            self._dotted.pop(_plain(topic), None)

    def colliding(self, topic: str) -> str | None:
        """The one that Kafka does not permit beside a topic of this name; None: there is none."""
        plain = _plain(topic)
        other = self._dotted.get(plain)
        if other is None and plain != topic and self._has(plain):
            return plain
        return None if other == topic else other

    def _has(self, topic: str) -> bool:
        return topic in self._topics or topic in self._waiting


def _plain(topic: str) -> str:
    return topic.replace(".", "_")
