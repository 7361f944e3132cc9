"""`run` and `play`: broker, job and the bundled scenario.

Imports `job`, `client`, `broker` and what these import.
"""
