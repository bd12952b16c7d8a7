"""The parts of the API's objects that are read here. Unknown fields are left alone: a server may be newer.

Sources: Kubernetes API reference (ListMeta, WatchEvent, Status, authentication.k8s.io/v1 TokenReview);
"Kubernetes API Concepts" (bookmarks, 410).
"""

import msgspec

NOTHING = msgspec.Raw(b"null")


class _Object(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class Metadata(_Object, frozen=True, kw_only=True):
    """Of one object; a bookmark has nothing but its version."""

    resource_version: str = ""
    uid: str = ""
    name: str = ""
    namespace: str = ""
    deletion_timestamp: str | None = None


class Resource(_Object, frozen=True, kw_only=True):
    """A TenantCorpus. Its status is decoded later, so that one that cannot be read hides no other; its spec never is."""

    metadata: Metadata
    status: msgspec.Raw = NOTHING


class ListMetadata(_Object, frozen=True, kw_only=True):
    """Of a page: its version, and the token of the next page, empty on the last."""

    resource_version: str
    continue_: str = msgspec.field(name="continue", default="")


class ResourcePage(_Object, frozen=True, kw_only=True):
    """One page of a list."""

    metadata: ListMetadata
    items: list[Resource] | None = None


class WatchLine(_Object, frozen=True, kw_only=True):
    """One line of a watch. `type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR; the object of the last is a Status."""

    type: str
    object: msgspec.Raw


class Status(_Object, frozen=True, kw_only=True):
    """A failure as the API server words it."""

    code: int = 0
    reason: str = ""
    message: str = ""


class TokenReviewSpec(_Object, frozen=True, kw_only=True):
    """What is asked: whether `token` is good for one of `audiences`."""

    token: str
    audiences: tuple[str, ...]


class TokenReviewRequest(_Object, frozen=True, kw_only=True):
    """The question about one token."""

    spec: TokenReviewSpec
    api_version: str = "authentication.k8s.io/v1"
    kind: str = "TokenReview"


class ReviewedUser(_Object, frozen=True, kw_only=True):
    """Whom a token names."""

    username: str = ""


class TokenReviewStatus(_Object, frozen=True, kw_only=True):
    """The answer. `audiences` holds those that were asked for and that the token has."""

    authenticated: bool = False
    user: ReviewedUser = ReviewedUser()
    audiences: tuple[str, ...] | None = None
    error: str = ""


class TokenReviewAnswer(_Object, frozen=True, kw_only=True):
    """The answer about one token."""

    status: TokenReviewStatus


class Discovery(_Object, frozen=True, kw_only=True):
    """`/.well-known/openid-configuration`: who signs the cluster's tokens (its fields keep their own names)."""

    issuer: str


class Jwk(msgspec.Struct, frozen=True, kw_only=True):
    """One published key (RFC 7517); what an RSA or an elliptic key does not have is empty."""

    kty: str
    kid: str = ""
    use: str = ""
    alg: str = ""
    n: str = ""
    e: str = ""
    crv: str = ""
    x: str = ""
    y: str = ""


class JwkSet(msgspec.Struct, frozen=True, kw_only=True):
    """The published keys."""

    keys: list[Jwk]
