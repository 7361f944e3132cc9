"""The plan of a rebalance: fair shares, then the fewest moves that reach them.

Imports `state` and `base`.
"""
