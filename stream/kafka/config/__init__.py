"""Settings and security of connections and of the job, read once; options that commands share.

Every wing calls it. Imports `common`, nothing else of `kafka`.
"""
