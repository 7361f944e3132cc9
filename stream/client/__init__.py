"""What a user of a job does: sends events and reads answers.

The commands `produce`, `watch`, `simulate`, `topics`, `schemas` and `completion`. Called by
`job` (the demonstration awaits its answers), `clusters` (requests, and what was announced of SPUs)
and `audit` (decisions in words). Imports `kafka` and `common`.
"""
