"""One shard of the state: its log, its process, its part of a batch.

Imports `checkpoint`, `kafka`, `config` and `common`.
"""
