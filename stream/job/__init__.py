"""The job: source, query, transactional sink, commit markers, errors.

Imports `metrics`, `shard`, `checkpoint`, `jvm`, `kafka`, `config` and `common`.
"""
