"""Moves of existing partitions, carried out in Kafka in waves (`runner`).

Imports `kafka` and `common`.
"""
