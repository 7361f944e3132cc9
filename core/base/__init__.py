"""Events, records, errors, limits, replica lists: the words of the core.

Imports nothing of the product.
"""
