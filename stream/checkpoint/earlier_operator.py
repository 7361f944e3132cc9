"""Checkpoints whose stateful step was Spark's one for Python: given the name of the present one.

Up to release 0.4 the step was `transformWithStateInPandas`; now it is `transformWithState`, with
the same state in the same form. Spark notes the step's name in `state/0/_metadata/v2` and rejects a
query with another one. So before the query starts the name is replaced in these notes, of which
there is one for each schema that the state has had. An older release rejects the checkpoint then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from spu_assigner.stream.checkpoint.files import list_names, read_lines, remove, write_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIER: Final = ("transformWithStateInPandasExec", "transformWithStateInPySparkExec")
PRESENT: Final = "transformWithStateExec"
_FOLDER: Final = "state/0/_metadata/v2"
_HALF: Final = ".half"  # what an interrupted `write_text` leaves


def rename_operator(spark: SparkSession, checkpoint: str) -> bool:
    """Give the stateful step its present name; gives whether it had an earlier one.

    Raises:
        Py4JJavaError: a note cannot be read or written.
    """
    folder = f"{checkpoint}/{_FOLDER}"
    renamed = False
    for name in list_names(spark, folder) or ():
        path = f"{folder}/{name}"
        text = "\n".join(read_lines(spark, path) or ())
        present = text
        for earlier in EARLIER:
            present = present.replace(f'"operatorName":"{earlier}"', f'"operatorName":"{PRESENT}"')
        if name.endswith(_HALF):
            write_text(spark, path.removesuffix(_HALF), text)
            remove(spark, path)
        elif present != text:
            write_text(spark, path, present)
            renamed = True
    return renamed
