"""The job with a sink that does not look at the last marker: the counter-proof of the crash tests.

It begins transactions and shuts out older processes like the real one, so what it writes twice the
marker alone prevents.
"""

from __future__ import annotations

import sys

from spu_assigner.schemas.wire import CommitMarker
from spu_assigner.stream import job, sink


class BlindSink(sink.TransactionalSink):
    """Sends every batch that Spark hands over."""

    def _is_sent(self, marker: CommitMarker) -> bool:
        return False


if __name__ == "__main__":
    if not hasattr(sink.TransactionalSink, "_is_sent"):
        sys.exit("the sink looks at its marker in another place: nothing would be switched off")
    sink.TransactionalSink = BlindSink  # type: ignore[misc]  # the job looks it up at its start
    sys.exit(job.main())
