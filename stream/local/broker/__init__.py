"""The embedded broker: a real Kafka in a process of its own; the command `broker`.

Imports `local.jvm`, `kafka.config` and `common`.
"""
