"""Small helpers without Kafka and Spark: files, texts, threads, signals,
child processes.

Imports nothing else of `stream`.
"""
