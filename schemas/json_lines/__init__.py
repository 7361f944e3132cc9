"""Events and answers as JSON Lines, the contract of `simulate`.

Imports `schemas.errors`.
"""
