"""Kafka clusters that live: their topics and brokers enter the state, and become what was decided.

The commands `adopt`, `follow`, `plan`, `apply`, `drain`, `rebalance` and `whatif`. Called by
`doctor`, which tries what moves need. Imports `job` (the published state, checkpoints),
`client`, `kafka` and `common`.
"""
