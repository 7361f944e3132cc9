"""`ui`: clusters, rings, loads and maps in a browser.

Imports `inspect`, `explain`, `shard`, `kafka`, `config` and `common`.
"""
