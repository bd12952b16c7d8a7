"""Wire formats: what agents send and get (`public`), what router and shard say to each other (`internal`).

Imports msgspec alone, so that every program and the client share one definition.
"""
