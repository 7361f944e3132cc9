"""`plan` and `apply`: Kafka's topics made as their replica maps say.

Imports `moves`, `desired`, `recover`, `kafka`, `config` and `common`.
"""
