"""The placement rules of the source documents: Fluvio's, Kafka's, Redpanda's, as pure functions.

`turning` has what they share. Imports `base`.
"""
