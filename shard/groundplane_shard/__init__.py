"""The shard: one process that holds one incarnation of one corpus, searches it and keeps its log."""
