"""One shard of the state: its log, its server, its part of a batch; the state as it was published.

Imports `kafka` and `common`, nothing else of `job`.
"""
