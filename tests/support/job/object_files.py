"""The files of a checkpoint on S3, written by two processes at once as Spark writes them.

`python tests/support/job/object_files.py s3a://bucket/prefix`: its JVM has the jars.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from py4j.protocol import Py4JJavaError
from spu_assigner.stream.job.session import start_command_session


def main(place: str) -> dict[str, Any]:
    spark = start_command_session(place, application="object-files")
    jvm: Any = spark.sparkContext._jvm
    options = spark.sparkContext._jsc.hadoopConfiguration()
    root = jvm.org.apache.hadoop.fs.Path(place)

    def files() -> Any:
        return jvm.io.spuassigner.spark.ObjectStoreFiles(root, options)

    def begun(name: str, content: bytes, *, replaces: bool) -> Any:
        stream = files().createAtomic(root.suffix(f"/{name}"), replaces)
        stream.write(bytearray(content))
        return stream

    def content(name: str) -> str:
        with_stream = files().open(root.suffix(f"/{name}"))
        text = jvm.org.apache.commons.io.IOUtils.toString(with_stream, "UTF-8")
        with_stream.close()
        return str(text)

    def outcome(act: Callable[[], Any]) -> str:
        try:
            act()
        except Py4JJavaError as reason:
            return str(reason.java_exception.getClass().getSimpleName())
        return "written"

    # Both look before either has put its own: without a condition the later one would win.
    first, second = (begun("offsets/0", each, replaces=False) for each in (b"one", b"two"))
    again = begun("offsets/0", b"one", replaces=False)
    cancelled = begun("cancelled", b"half", replaces=True)
    seen = files().exists(root.suffix("/offsets/0"))
    found: dict[str, Any] = {
        "before the end": seen,
        "first": outcome(first.close),
        "second": outcome(second.close),
        "first again": outcome(again.close),
        "content": content("offsets/0"),
    }
    cancelled.cancel()
    cancelled.close()
    found["cancelled is there"] = files().exists(root.suffix("/cancelled"))
    for each in (b"earlier", b"later"):
        begun("1.changelog", each, replaces=True).close()
    found["replaced"] = content("1.changelog")
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
