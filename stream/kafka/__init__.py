"""Kafka: its topics, rights and clients, how errors are reported and retried, and `config`.

Every other wing calls it: whatever reaches a broker does so by it. No command is here.
Imports `common`.
"""
