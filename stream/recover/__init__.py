"""`recover`: a new checkpoint made of what the job has published.

Imports `job` and what it imports.
"""
