"""`run`: broker, job and the bundled scenario; `play` sends that to a job that runs.

Imports `job`, `client`, `broker` and what these import.
"""
