"""Java, jars, trust stores and class archives on this machine; the product's own Java.

Imports `common`.
"""
