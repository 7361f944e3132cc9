"""Places where a program can be made to die, so that its promise can be tested.

SPU_ASSIGNER_FAILPOINT names one, as `name` or `name:batch`: there, in the first batch that has at
least this number, the driver's whole process group is killed, as by a crash of its machine. It is
meant for a trial with data of its own, and costs nothing where the variable is not set.
"""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from spu_assigner.core.base.errors import bounded_repr
from spu_assigner.stream.kafka.config.settings import SettingsError

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Armed:
    """Where this process is to die, if anywhere."""

    failpoint: Failpoint | None
    batch: int = 0  # the first in which it may

    def reach(
        self, failpoint: Failpoint, batch: int, *, settle: Callable[[], object] = lambda: None
    ) -> None:
        """The batch is at this place: returns, or settles what is to be settled and dies."""
        if failpoint is self.failpoint and batch >= self.batch:
            settle()
            os.killpg(os.getpgrp(), signal.SIGKILL)


def armed(environ: Mapping[str, str] = os.environ) -> Armed:
    """What the environment says; raises SettingsError if it names no failpoint."""
    text = environ.get(VARIABLE, "").strip()
    match = re.fullmatch(rf"({'|'.join(Failpoint)})(?::([0-9]{{1,18}}))?", text)
    if match is not None:
        return Armed(failpoint=Failpoint(match[1]), batch=int(match[2] or 0))
    if text:
        raise SettingsError(
            VARIABLE,
            found=bounded_repr(text),
            expected=f"one of {', '.join(Failpoint)}, with or without :batch, or empty",
        )
    return Armed(failpoint=None)
