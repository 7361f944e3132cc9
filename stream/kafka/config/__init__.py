"""Settings and security, read once; the options that commands share.

Imports `common`.
"""
