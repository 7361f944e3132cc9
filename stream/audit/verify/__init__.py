"""`verify`: an audit of the outputs against markers and inputs.

Imports `job`, `kafka` and `common`.
"""
