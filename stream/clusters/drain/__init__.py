"""`drain` and `rebalance`: one event for the job, then the moves that follow, until Kafka shows it.

Imports `clusters.follow`, `clusters.plan`, `clusters.moves`, `job.shard`, `kafka` and `common`.
"""
