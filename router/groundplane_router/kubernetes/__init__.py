"""The router in a cluster: TenantCorpora as its directory, ServiceAccount tokens as its callers.

    access       where the API server is, and what proves to it who we are
    client       one call, one answer: every failure as `Unavailable`, of bounded size and time
    failures     why the API server did not answer, with one code each
    lines        a stream of bytes as whole lines
    objects      the parts of the API's objects that are read here
    list_watch   a collection, listed and then watched, for ever
    corpora      pure: from resources to entries of the directory, without ambiguity
    directory    the directory that follows the collections
    service_accounts  what their tokens claim
    token_review callers by asking the API server
    jwks         callers by the cluster's published keys

Only `access` and `client` know HTTP. The router reads and never writes a resource. What is read of a TenantCorpus is its
status, which the operator wrote; nothing here ever decodes a spec.
"""
