"""The inputs applied again by the core, batch by batch, as the job did it.

Each batch is divided into its marker's `shards` and merged in each of them: where the broker's
clock stepped back, the order of a partition's messages against others depends on which of them a
shard has. The policy for requests that name none is the marker's, the encoding is that of the
marker itself.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.core.base.events import Policy
from spu_assigner.schemas.messages.wire import CommitMarker, Wire
from spu_assigner.stream.job.batch_buffer import BatchBuffer
from spu_assigner.stream.job.query import shard_labels
from spu_assigner.stream.job.shard.batch import Options, ShardBatch
from spu_assigner.stream.job.shard.clusters import Clusters
from spu_assigner.stream.job.shard.input_batch import Batch, Row

_CONFLUENT: Final = b"\x00"


class ReplayError(AssignerError):
    """A batch cannot be applied again."""


class Replay:
    """The state of all clusters, and how batches change it."""

    def __init__(self, prefix: str) -> None:
        self._clusters = Clusters()
        self._prefix = prefix

    def apply(
        self, marker: CommitMarker, wire: Wire, rows: Sequence[Row], buffer: BatchBuffer
    ) -> None:
        """Apply a batch's messages; the answers are in the buffer, in their order.

        Raises:
            ReplayError: the core refuses, or the marker does not say how.
        """
        try:
            policy = Policy(marker.default_policy)
            options = Options(topic_prefix=self._prefix, default_policy=policy, wire=wire)
            labels = shard_labels(marker.shards)
            shares: defaultdict[int, list[Row]] = defaultdict(list)
            for row in rows:
                shares[labels[zlib.crc32(row[4] or b"") % marker.shards]].append(row)
            for label, share in shares.items():
                bundles = ShardBatch(self._clusters, options).apply(Batch.of_rows(share))
                for sequence, bundle in enumerate(bundles):
                    buffer.add(label, sequence, bundle)
        except (AssignerError, ValueError, ZeroDivisionError) as reason:
            raise ReplayError(f"{type(reason).__name__}: {reason}") from reason


def wire_of(value: bytes) -> Wire:
    """The encoding of a message."""
    return Wire.CONFLUENT if value.startswith(_CONFLUENT) else Wire.SINGLE_OBJECT
