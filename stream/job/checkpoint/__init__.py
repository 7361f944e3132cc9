"""What a checkpoint contains before its query starts, and whether Kafka still has what comes next.

A file that cannot be read is a `Py4JJavaError` or an `OSError`, one whose content is wrong a
`CheckpointError`. Imports `kafka` and `common`, nothing else of `job`.
"""
