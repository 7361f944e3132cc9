"""What a shard's servers are given of the settings; the job's own process loads no more of them."""

from __future__ import annotations

import msgspec
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.wire import Wire


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What a shard needs of the settings."""

    topic_prefix: str
    default_policy: Policy
    wire: Wire


def options_to_json(options: Options, *, spills: bool) -> str:
    """On one line; `spills`: large answers may go by files, since the driver is on this machine."""
    return msgspec.json.encode((options, spills)).decode()
