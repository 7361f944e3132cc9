"""Counts, metrics and health of a job.

Imports `shard`, `kafka`, `config` and `common`.
"""
