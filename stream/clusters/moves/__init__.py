"""Moves of existing partitions, carried out in Kafka in waves (`runner`).

Imports `job` (its failpoints), `kafka` and `common`.
"""
