"""`inspect`: what a job's checkpoint holds.

Imports `job` and what it imports.
"""
