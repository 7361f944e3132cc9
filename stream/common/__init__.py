"""Small helpers without Kafka and Spark: files, texts, threads, signals.

Imports nothing else of `stream`.
"""
