"""What a rebalance weighs: SPUs as parallel arrays."""

from __future__ import annotations

from dataclasses import dataclass

from spu_assigner.core.base.replica_lists import IdArray
from spu_assigner.core.state.ledger import CountArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Loads:
    """SPUs by ascending id; every array has shape (n,) and is only read."""

    ids: IdArray
    racks: IdArray  # rack numbers, 0 … in name order; an SPU without a rack is on rack ""
    capacities: CountArray  # replica slots
    replicas: CountArray  # held now, over all topics
    leaders: CountArray  # lists led now, over all topics
