"""`plan --desired` and `apply --desired`: a file of desired topics becomes events.

Imports `job.shard`, `client`, `kafka` and `common`.
"""
