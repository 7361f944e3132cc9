"""`follow-brokers`: the brokers of a Kafka cluster join and leave as SPUs.

Imports `kafka`, `config` and `common`.
"""
