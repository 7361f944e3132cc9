"""The state of one cluster: ring, counts, topics, chain indexes, and `evolve`, its only writer.

Imports `rules` and `base`.
"""
