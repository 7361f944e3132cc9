"""The job: source, query, transactional sink, markers, named errors; reading back what it wrote.

The command `run`. Called by `clusters` (the published state) and `audit` (markers,
checkpoints, batches), by `setup` and `submit`. Imports `client`, `local`, `kafka` and `common`.
"""
