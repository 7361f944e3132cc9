"""`adopt` and `follow`: a Kafka cluster's topics and brokers enter the state.

Imports `plan`, `kafka`, `config` and `common`.
"""
