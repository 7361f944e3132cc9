"""How the product's own Kafka consumers are set up."""

from __future__ import annotations

import re
from pathlib import Path

_STREAM = Path(__file__).parents[3] / "stream"


def test_no_consumer_leaves_it_to_the_client_where_to_read_when_its_start_is_gone() -> None:
    """librdkafka's default jumps to the end: all that is there would count as read."""
    texts = {path: path.read_text(encoding="utf-8") for path in _STREAM.rglob("*.py")}
    makers = [path for path, text in texts.items() if re.search(r"\bConsumer\(", text)]
    assert len(makers) >= 3
    assert [path for path in makers if '"auto.offset.reset"' not in texts[path]] == []
