"""`plan --desired` and `apply --desired`: a file of desired topics becomes events.

Imports `recover`, `client`, `kafka`, `config` and `common`.
"""
