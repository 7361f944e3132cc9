"""Moves of existing partitions, carried out in Kafka: a state machine (`machine`) of waves.

Imports `job` (its failpoints), `kafka` and `common`.
"""
