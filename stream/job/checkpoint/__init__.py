"""What a checkpoint contains before its query starts, and whether Kafka still has what comes next.

Imports `kafka` and `common`, nothing else of `job`.
"""
