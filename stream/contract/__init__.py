"""The contract of the topics: AsyncAPI document, Schema Registry.

Imports `verify`, `shard`, `kafka`, `config` and `common`.
"""
