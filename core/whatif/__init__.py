"""What a failure of SPUs costs: leaders, replicas, slots; of one set of SPUs, or of all.

Imports `state` and `base`.
"""
