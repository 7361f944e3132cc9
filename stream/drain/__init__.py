"""`drain`: a broker is emptied, until Kafka shows that it holds nothing.

Imports `plan`, `moves`, `follow`, `kafka`, `config` and `common`.
"""
