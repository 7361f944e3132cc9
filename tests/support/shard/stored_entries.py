"""What a stored shard holds, without decoding any of it."""

from __future__ import annotations

from collections.abc import Mapping

from spu_assigner.stream.job.shard.state_log import HEAD, Shard, segment_key


class _Entries(dict[bytes, bytes]):
    """A copy that decodes nothing."""

    def restore(self, key: bytes, value: bytes | None) -> None:
        if value is None:
            self.pop(key, None)
        else:
            self[key] = value


def read_entries(stored: Mapping[str, bytes]) -> dict[bytes, bytes]:
    """The valid entries of a stored shard."""
    shard = Shard(_Entries())
    numbers = shard.begin(stored.get(HEAD))
    shard.take(stored.get(segment_key(number), b"") for number in numbers)
    return shard.copy
