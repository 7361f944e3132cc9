"""`plan` and `apply`: Kafka's topics made as their replica maps say.

Imports `clusters.moves`, `clusters.desired`, `job.shard`, `kafka` and `common`.
"""
