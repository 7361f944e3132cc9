"""`drain` and `rebalance`: one event for the job, then the moves that follow, until Kafka shows it.

Imports `plan`, `moves`, `follow`, `recover`, `kafka`, `config` and `common`.
"""
