"""The placement rules of the source documents: Fluvio's, Kafka's, Redpanda's, as pure functions.

Imports `base`.
"""
