"""The lever that a plain loop may take over from the product: a map's lists as a slice of bytes.

Fluvio's formula repeats itself after N * (N - R + 1) lists, so the lists of a ring are laid out
once, with their Avro bytes, and a topic's are a piece of that. Core and codec are the product's.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from spu_assigner.core.base.events import Policy
from spu_assigner.core.base.records import ReplicaMap
from spu_assigner.core.base.replica_lists import ReplicaLists, Table
from spu_assigner.core.rules.fluvio import round_robin
from spu_assigner.schemas.messages.codec import encode_record

OVERLAP_ROWS: Final = 1_024  # past the period, so that a usual topic never passes the table's end

_tables: dict[tuple[tuple[int, ...], int], Table] = {}  # rings of the same SPUs share one


def table_of(ring: list[int], replicas: int) -> Table:
    """The lists of a whole period and a little more."""
    key = tuple(ring), replicas
    if key not in _tables:
        rows = len(ring) * (len(ring) - replicas + 1) + OVERLAP_ROWS
        ids = np.array(ring, dtype=np.int32)
        _tables[key] = Table(round_robin(ids, start=0, partitions=rows, replicas=replicas))
    return _tables[key]


def table_map(event: dict[str, Any], cluster: Any) -> bytes:
    """The map that answers a create, its lists out of the table."""
    first, count = cluster.index, event["partitions"]
    replicas = event["replication_factor"]
    cluster.index += count
    table = cluster.tables.get(replicas)
    if table is None:
        table = cluster.tables[replicas] = table_of(cluster.ring, replicas)
    row = first % (len(table.rows) - OVERLAP_ROWS)
    if row + count <= len(table.rows):
        lists = table.lists(row, count)
    else:
        ids = np.array(cluster.ring, dtype=np.int32)
        lists = ReplicaLists(round_robin(ids, start=first, partitions=count, replicas=replicas))
    return encode_record(
        ReplicaMap(
            cluster_id=event["cluster_id"],
            topic=event["topic"],
            revision=1,
            policy=Policy.FLUVIO,
            replicas=lists,
            cores=None,
            chain_index=cluster.index,
            cause=event["event_id"],
            replication_factor=replicas,
        )
    )
