"""`ui`: clusters, rings, loads and maps in a browser.

Imports `audit.cluster_report`, `job.shard`, `client`, `kafka` and `common`.
"""
