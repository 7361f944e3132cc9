"""What makes the product run on a bare machine: Java, jars and the embedded broker.

Called by `job` (Java and jars for Spark, the broker of `run`), by `doctor`, which checks them, by
`setup` and `submit`; the command `broker`. Imports `kafka` (its `config`) and `common`.
"""
