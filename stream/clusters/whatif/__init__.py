"""`whatif`: what a failure of SPUs or racks would cost a cluster.

Imports `inspect`, `recover`, `kafka`, `config` and `common`.
"""
