"""Moves of existing partitions, carried out in Kafka: waves, throttle, progress, seat.

Imports `job` (its failpoints), `kafka` and `common`.
"""
