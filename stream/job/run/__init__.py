"""`run`: broker, job and the demonstration; `play` sends its events to a job that runs.

Imports all of `job`, `local`, `client`, `kafka` and `common`.
"""
