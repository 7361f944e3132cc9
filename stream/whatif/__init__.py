"""`whatif`: what a failure of SPUs or racks would cost a cluster.

Imports `plan`, `inspect`, `recover`, `kafka`, `config` and `common`.
"""
