"""`explain`: why a topic's replicas are where they are.

Imports `kafka`, `config` and `common`.
"""
