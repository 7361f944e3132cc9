"""The job with transactions that Kafka aborts after three seconds, so that a trial need not last
two minutes.
"""

from __future__ import annotations

import sys

from spu_assigner.stream.job import lifecycle as job
from spu_assigner.stream.job import sink

TRANSACTION_SECONDS = 3

if __name__ == "__main__":
    sink.TRANSACTION_SECONDS_MAX = TRANSACTION_SECONDS  # type: ignore[misc]  # a constant to others
    sys.exit(job.main())
