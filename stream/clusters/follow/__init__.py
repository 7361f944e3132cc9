"""`adopt` and `follow`: a Kafka cluster's topics and brokers enter the state.

Imports `clusters.plan`, `clusters.moves`, `job.shard`, `client`, `kafka` and `common`.
"""
