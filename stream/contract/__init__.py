"""The messages' schemas in a Schema Registry.

Imports `config` and `common`.
"""
