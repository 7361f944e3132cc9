"""The source documents' examples through a job that runs: a step of the container stack.

    python -m spu_assigner.stream.job.run.play

`run --demo` starts a job for them; this program needs none but its topics: it sends the events,
waits for their answers, and prints them beside what the documents say. The settings are those of
the environment. It may be repeated: each time clusters have other ids.
"""

from __future__ import annotations

import sys
import uuid

from spu_assigner.core.base.errors import AssignerError
from spu_assigner.stream.job.run.demo import Play, report
from spu_assigner.stream.job.run.scenario import examples
from spu_assigner.stream.kafka.config.settings import Settings
from spu_assigner.stream.kafka.topic_admin import check_topics


def main() -> int:
    """Play; exit status 0 if every map and every answer is as expected."""
    try:
        connection = Settings.load().connection()
        check_topics(connection.client(), prefix=connection.prefix)
        performance = Play(connection, examples(f"play-{uuid.uuid4().hex[:6]}."))
        sent = f"{performance.send()} messages sent to Kafka, waiting for their answers"
        print(sent, file=sys.stderr)
        found = performance.gather(lambda: None)
    except AssignerError as error:
        print(f"spu-assigner: {' '.join(str(error).split())}", file=sys.stderr)
        return 1
    return 0 if report(performance.examples, found) else 1


if __name__ == "__main__":
    sys.exit(main())
