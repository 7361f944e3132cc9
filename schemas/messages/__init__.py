"""Events, records and markers as Avro messages, with their frame.

Imports `avro`.
"""
