"""`doctor`: diagnose start-up failures, with a fix for each.

Imports `clusters.moves`, `job`, `local.jvm`, `kafka` and `common`.
"""
