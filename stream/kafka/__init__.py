"""Kafka's topics, rights and clients, and how their errors are reported and retried.

Imports `config` and `common`.
"""
