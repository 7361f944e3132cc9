"""The plan of a rebalance: repairs, fair shares, the fewest moves that reach them, leaders.

Imports `placement`, `constraints`, `state` and `base`.
"""
