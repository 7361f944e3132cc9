"""Commands for users of a job: produce, watch, simulate, topics, completion.

Imports `explain`, `kafka`, `config` and `common`.
"""
