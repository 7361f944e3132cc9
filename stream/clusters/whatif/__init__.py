"""`whatif`: what a failure of SPUs or racks would cost a cluster.

Imports `clusters.plan` (events of a file, tables), `job.shard`, `kafka` and `common`.
"""
