"""What was decided, and whether it is so: reads what jobs and clusters have, and judges it.

The commands `verify`, `recover`, `inspect`, `explain`, `doctor` and `ui`. No wing calls it.
Imports `clusters` (`doctor`: its moves), `job`, `client`, `local`, `kafka` and `common`.
"""
