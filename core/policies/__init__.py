"""Whole requests placed by a rule on a ring that may shrink, and lists given by hand.

Imports `state`, `rules` and `base`.
"""
