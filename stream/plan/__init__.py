"""`plan` and `apply`: Kafka's topics made as their replica maps say.

Imports `recover`, `kafka`, `config` and `common`.
"""
