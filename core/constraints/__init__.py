"""Placing by constraints: which SPUs a topic may have, and which lists of them are best.

Imports `state` and `base`.
"""
