"""Avro without the meaning: strict reading, writing, the file registry, schema evolution.

Imports `schemas.errors`.
"""
