"""Avro without the meaning: strict readers and writers, the file registry.

Imports `schemas.errors`.
"""
