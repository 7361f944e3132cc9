"""Which SPU gets a replica: rules that must hold, then one order of preference, for every path.

Imports `constraints`, `state` and `base`.
"""
