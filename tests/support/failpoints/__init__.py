"""Places where a program of the product is killed, so that its promise can be tested.

The product reports each place by `sys.audit("spu_assigner.<name>", number)`, which costs nothing
where nothing listens. A program that is started with `dying_at(...)` in its environment finds
`site/sitecustomize.py`, which listens, and kills its process group there, as a crash would.
"""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path
from typing import Final

SITE: Final = Path(__file__).with_name("site")
VARIABLE: Final = "SPU_ASSIGNER_FAILPOINT"


class Failpoint(StrEnum):
    """Where in a batch, in the order in which it comes by; then in `recover`, then in a wave of
    `apply --moves`, whose number stands for the batch's."""

    BEFORE_COLLECT = "before-collect"  # nothing of the batch has been computed
    INSIDE_TRANSACTION = "inside-transaction"  # all messages are at the broker, not committed
    AFTER_COMMIT = "after-commit"  # Kafka has acknowledged the commit, which is not noted yet
    BEFORE_SPARK_COMMIT = "before-spark-commit"  # the sink is done, Spark has not noted it
    BEFORE_RECOVERY_MARKER = "before-recovery-marker"  # `recover` has written the checkpoint only
    WAVE_RECORDED = "wave-recorded"  # Kafka has the record of what comes next, nothing else
    WAVE_THROTTLED = "wave-throttled"  # the throttle is set
    WAVE_STARTED = "wave-started"  # Kafka moves the partitions
    WAVE_ENDED = "wave-ended"  # they are moved, the throttle is still set
    WAVE_CLEARED = "wave-cleared"  # the throttle is removed, which is not noted yet


def dying_at(failpoint: str) -> dict[str, str]:
    """The environment of a program that is killed at `<name>` or, first in a batch that has at
    least this number, `<name>:<number>`; empty: of one that is not."""
    if not failpoint:
        return {}
    # A trial that silently tries nothing would prove nothing.
    assert re.fullmatch(rf"({'|'.join(Failpoint)})(:[0-9]+)?", failpoint), failpoint
    paths = [str(SITE), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {VARIABLE: failpoint, "PYTHONPATH": os.pathsep.join(paths)}
