"""The shell around the core: Kafka, Spark and the command line, in six wings.

A wing is a package with packages of its own. It imports the wings below it and the ground floor,
`common`, never a wing above it or beside it: `audit`, then `clusters`, then `job`, then `client`
and `local` side by side, then `kafka`. import-linter holds this.

`cli`, `setup` and `submit` are what a user, the set-up and `spark-submit` start; they may import
all wings, and no wing imports them.
"""
