"""The ground floor: small helpers without Kafka and Spark, for files, texts, threads, signals and
child processes.

Every wing calls it. Imports nothing else of `stream`.
"""
