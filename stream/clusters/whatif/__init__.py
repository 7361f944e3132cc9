"""`whatif`: what a failure of SPUs or racks would cost a cluster.

Imports `job` (what it has published, its checkpoint), `kafka` and `common`, nothing else of
`clusters`.
"""
