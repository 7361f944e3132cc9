"""The embedded broker: a real Kafka in a process of its own.

Imports `jvm`, `config` and `common`.
"""
