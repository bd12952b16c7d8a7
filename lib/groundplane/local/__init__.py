"""One machine instead of a cluster: the data directory, the plan of processes, and the supervisor that keeps them up.

It starts router and shards as programs and never imports them. `layout` knows every path, `plan` decides what runs,
`supervisor` runs it, `callers` signs tokens for the people at the command line.
"""
