"""Avro without the meaning: strict readers and writers, the file registry, schema evolution.

Imports `schemas.errors`.
"""
