"""The operator: turns TenantCorpus resources into shards and says truthfully where each stands."""
