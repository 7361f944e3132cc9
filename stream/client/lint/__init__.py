"""`lint`: faults of event files and replica lists before they are sent.

Imports `client` and `common`.
"""
