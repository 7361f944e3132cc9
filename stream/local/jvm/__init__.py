"""Java, jars, trust stores and class archives on this machine.

Imports `common`.
"""
