"""`doctor`: diagnose start-up failures, with a fix for each.

Imports `job` and what it imports.
"""
