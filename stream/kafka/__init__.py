"""Kafka: its topics, rights and clients, how errors are reported and retried, and `config`.

Every other wing calls it: whatever reaches a broker does so by it. No command is here.
What asks a broker raises a ClientError where none answers (UnreachableError, with the reason) or
one refuses; docstrings name what a caller may handle. Imports `common`.
"""
