"""What the failure of SPUs costs: leaders, replicas, resources; of named SPUs, or of any one.

Imports `state` and `base`.
"""
