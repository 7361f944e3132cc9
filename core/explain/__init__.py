"""Why a replica is where it is: decisions of the past, computed again with names.

Imports all other packages of the core.
"""
