"""The file that `spark-submit` is given, for a Spark cluster.

    export PYSPARK_PYTHON=$(which python) KAFKA_BOOTSTRAP_SERVERS=… SPU_ASSIGNER_CHECKPOINT=…
    spark-submit --master spark://host:7077 $(python -m spu_assigner.stream.submit)

Outside Spark it prints what `spark-submit` needs: `--jars`, Spark's connector to Kafka as it was
fetched and checked and the source that waits for events, and this file; where
SPU_ASSIGNER_CHECKPOINT is on S3 also the jars for that. Under `spark-submit` it
runs the job. Settings come by the environment, as everywhere; executors need the package installed
in the Python that PYSPARK_PYTHON names, and the checkpoint in a place that all of them reach.

Deploy mode `client`: the driver, which alone writes to Kafka, runs where the command is typed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> int:
    """Run the job, or print what to submit."""
    from spu_assigner.core.base.errors import AssignerError

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from spu_assigner.stream.job.lifecycle import main as run_job

        return run_job()
    from spu_assigner.stream.job.session import ensure_jars, jars_option
    from spu_assigner.stream.kafka.config.settings import Settings

    try:
        jars = jars_option(ensure_jars(Settings.load().checkpoint))
    except AssignerError as error:
        print(f"spu-assigner: {error}", file=sys.stderr)
        return 1
    print("--jars", jars, Path(__file__).resolve())
    return 0


if __name__ == "__main__":
    # Run as a file, Python looks into its folder first: `lines` or `cache` there are not for all.
    here = Path(__file__).resolve().parent
    sys.path[:] = [entry for entry in sys.path if not entry or Path(entry).resolve() != here]
    sys.exit(main())
