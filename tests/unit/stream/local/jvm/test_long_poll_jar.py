"""The jar of the source that waits, as it is kept."""

from __future__ import annotations

from support.project.java_jar import source_digest, stated_digest


def test_the_jar_is_that_of_the_java_beside_it() -> None:
    assert stated_digest() == source_digest(), "the Java was changed: `make jar` compiles it"
