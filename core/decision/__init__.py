"""The state machine: events become records.

Imports all other packages of the core but `explain`.
"""
