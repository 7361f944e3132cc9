"""`simulate --check`: every fault of a file of events, before they are sent.

Called by `simulate` alone. Imports `common` and nothing else of `stream`.
"""
