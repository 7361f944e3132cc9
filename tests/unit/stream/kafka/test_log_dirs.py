"""What is said of replicas that a user may not see."""

from __future__ import annotations

from spu_assigner.stream.kafka.log_dirs import UnseenReplicas

HELD = {("a", 0): {1: 5}, ("a", 1): {1: 5, 2: 5}, ("b", 0): {3: 0}}


def test_replicas_that_are_not_seen_and_brokers_that_do_not_report_are_named() -> None:
    """A line for each, and none where nothing is left out."""
    assert list(UnseenReplicas().lines("")) == []
    assert list(UnseenReplicas(sizes=HELD, silent=(2,)).lines("they are not counted")) == [
        "4 replicas of 2 topics that you may not see (a, b): they are not counted",
        "broker 2 does not report what topics that you may not see hold there; brokers do to users "
        "who may Describe the cluster: they are not counted",
    ]


def test_some_topics_of_those_that_are_not_seen() -> None:
    """Whether a broker reports has nothing to do with the topic."""
    some = UnseenReplicas(sizes=HELD, silent=(4,)).of(lambda topic: topic == "a")
    assert (some.topics, some.summary.replicas, some.silent) == (["a"], 3, (4,))
