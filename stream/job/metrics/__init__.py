"""Counts, metrics and health of a job.

Imports `job.shard`, `kafka` and `common`.
"""
