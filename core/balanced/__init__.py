"""The policy `balanced`: numbers of replicas by capacity first, then lists that have them.

Imports `state` and `base`.
"""
