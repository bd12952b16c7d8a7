"""Settings are read once, and every fault of them is reported at once, by name."""

import pytest

from groundplane.errors import InvalidInput
from groundplane.process.settings import settings_table
from groundplane.tokens import SigningKey
from groundplane.wire.public import MAX_BODY_BYTES
from groundplane_router.assembly import MIB
from groundplane_router.settings import RouterSettings, embedding_settings, parse_namespaces, read_router_settings

REQUIRED = ("GROUNDPLANE_DIRECTORY_FILE", "GROUNDPLANE_CALLER_KEY_FILE", "GROUNDPLANE_SIGNING_KEY_FILE")


@pytest.fixture
def read(tmp_path):
    """Return a function that reads settings of which only the given ones may be at fault."""
    signer = SigningKey.load_or_create(tmp_path / "router.pem")
    (tmp_path / "caller.pem").write_bytes(signer.public_pem())
    files = ("directory.json", "caller.pem", "router.pem")
    required = {name: str(tmp_path / file) for name, file in zip(REQUIRED, files, strict=True)}
    return lambda **more: read_router_settings(required | more)


def test_the_systems_own_variables_have_their_names():
    """They are fixed by the system's specification."""
    names = {row.variable for row in settings_table(RouterSettings)}

    given = {"MODEL_EMBEDDING_DIM", "EMBEDDING_URL", "FACE_DCI_CORPUS_DIR"}
    of_every_pod = {"KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"}
    assert given <= names
    assert all(name.startswith("GROUNDPLANE_") for name in names - given - of_every_pod)


def test_every_fault_is_reported_at_once():
    """Whoever starts it must not fix one and meet the next."""
    with pytest.raises(InvalidInput) as fault:
        read_router_settings(
            {
                "MODEL_EMBEDDING_DIM": "many",
                "GROUNDPLANE_PORT": "70000",
                "GROUNDPLANE_EMBEDDER": "openai",
                "GROUNDPLANE_EMBEDDING_FORMAT": "custom",
                "GROUNDPLANE_TERM_FLOOR": "2",
            }
        )

    for name in (
        *REQUIRED,
        "MODEL_EMBEDDING_DIM",
        "GROUNDPLANE_PORT",
        "GROUNDPLANE_EMBEDDER=openai",
        "QUERY_TEMPLATE",
        "TERM_FLOOR",
    ):
        assert name in fault.value.message


@pytest.mark.parametrize(
    ("given", "kind", "dimension"),
    [
        pytest.param({}, "none", 768, id="nothing"),
        pytest.param({"EMBEDDING_URL": "http://e"}, "openai", 768, id="url-alone"),
        pytest.param({"GROUNDPLANE_EMBEDDER": "embedded"}, "embedded", 384, id="embedded"),
        pytest.param({"GROUNDPLANE_EMBEDDER": "none", "EMBEDDING_URL": "http://e"}, "none", 768, id="switched-off"),
        pytest.param({"EMBEDDING_URL": "http://e", "MODEL_EMBEDDING_DIM": "1024"}, "openai", 1024, id="size-given"),
        pytest.param({"EMBEDDING_URL": ""}, "none", 768, id="empty-is-unset"),
    ],
)
def test_the_embedder_follows_from_what_is_set(read, given, kind, dimension):
    """No embedder unless one is asked for; 768 unless the profile says otherwise."""
    settings = embedding_settings(read(**given))

    assert (settings.kind, settings.index_dimension) == (kind, dimension)


def test_the_key_of_the_embedding_server_comes_from_its_file(read, tmp_path):
    """An environment is readable by every child."""
    (tmp_path / "key").write_text("sk-canary\n")
    settings = read(EMBEDDING_URL="http://e", GROUNDPLANE_EMBEDDING_API_KEY_FILE=str(tmp_path / "key"))

    assert embedding_settings(settings).api_key == "sk-canary"
    assert "sk-canary" not in repr(settings) + repr(embedding_settings(settings))


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe"], ids=["missing", "empty", "not-text"])
def test_a_key_file_that_cannot_be_used_is_a_fault(read, tmp_path, content):
    """Else every embedding would fail with 401, later."""
    if content is not None:
        (tmp_path / "key").write_bytes(content)

    with pytest.raises(InvalidInput, match=r"GROUNDPLANE_EMBEDDING_API_KEY_FILE=.*: .*expected"):
        read(EMBEDDING_URL="http://e", GROUNDPLANE_EMBEDDING_API_KEY_FILE=str(tmp_path / "key"))


def test_files_directories_and_addresses_are_judged_with_the_rest(read, tmp_path):
    """A start that fails on one key and the next time on the other costs an evening; an address may hold a password."""
    with pytest.raises(InvalidInput) as fault:
        read(
            GROUNDPLANE_CALLER_KEY_FILE=str(tmp_path / "router.pem"),
            GROUNDPLANE_SIGNING_KEY_FILE=str(tmp_path / "caller.pem"),
            FACE_DCI_CORPUS_DIR=str(tmp_path / "none"),
            EMBEDDING_URL="ftp://user:canary@e",
            GROUNDPLANE_LANGUAGE="klingon",
        )

    faults = fault.value.message.splitlines()
    assert [line.partition("=")[0] for line in faults] == [
        "GROUNDPLANE_CALLER_KEY_FILE", "GROUNDPLANE_SIGNING_KEY_FILE", "EMBEDDING_URL", "FACE_DCI_CORPUS_DIR",
        "GROUNDPLANE_LANGUAGE",
    ]  # fmt: skip
    assert all("expected" in line for line in faults)
    assert "canary" not in fault.value.message


def test_all_bodies_together_always_hold_the_largest_one(read):
    """A bound below it would refuse a full batch for ever, with "try again"."""
    with pytest.raises(InvalidInput, match="GROUNDPLANE_BODIES_MIB=7: expected"):
        read(GROUNDPLANE_BODIES_MIB="7")
    assert read(GROUNDPLANE_BODIES_MIB="8").bodies_mib * MIB >= MAX_BODY_BYTES


def test_an_embedded_model_beside_a_url_is_a_contradiction(read):
    """One of the two would silently be ignored."""
    with pytest.raises(InvalidInput, match="EMBEDDING_URL"):
        read(GROUNDPLANE_EMBEDDER="embedded", EMBEDDING_URL="http://e")


IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({"GROUNDPLANE_DIRECTORY_FILE": ""}, "GROUNDPLANE_DIRECTORY_FILE", id="no-file"),
        pytest.param({"GROUNDPLANE_CALLER_KEY_FILE": ""}, "GROUNDPLANE_CALLER_KEY_FILE", id="no-key"),
        pytest.param(
            {"GROUNDPLANE_DIRECTORY": "kubernetes", **IN_A_POD},
            "GROUNDPLANE_DIRECTORY_FILE",
            id="a-file-that-is-not-read",
        ),
        pytest.param(
            {"GROUNDPLANE_IDENTITY": "jwks", **IN_A_POD}, "GROUNDPLANE_CALLER_KEY_FILE", id="a-key-that-is-not-read"
        ),
        pytest.param(
            {"GROUNDPLANE_WATCH_NAMESPACES": "agents"}, "GROUNDPLANE_WATCH_NAMESPACES", id="namespaces-of-a-file"
        ),
        pytest.param(
            {"GROUNDPLANE_IDENTITY": "tokenreview", "GROUNDPLANE_CALLER_KEY_FILE": ""},
            "KUBERNETES_SERVICE_HOST",
            id="not-in-a-pod",
        ),
        pytest.param({"GROUNDPLANE_DIRECTORY": "etcd"}, "GROUNDPLANE_DIRECTORY=etcd", id="unknown-directory"),
        pytest.param({"GROUNDPLANE_IDENTITY": "none"}, "GROUNDPLANE_IDENTITY=none", id="no-anonymous-mode"),
    ],
)
def test_a_kind_of_directory_or_identity_has_what_it_needs_and_no_more(read, changes, named):
    """A setting that is silently ignored is one that somebody relies on."""
    with pytest.raises(InvalidInput) as fault:
        read(**changes)

    assert named in fault.value.message
    assert len(fault.value.message.splitlines()) == 1


@pytest.mark.parametrize("identity", ["tokenreview", "jwks"])
def test_a_router_in_a_cluster_needs_no_file_but_its_key(read, identity):
    """The rest is in every pod."""
    settings = read(
        GROUNDPLANE_DIRECTORY="kubernetes",
        GROUNDPLANE_DIRECTORY_FILE="",
        GROUNDPLANE_IDENTITY=identity,
        GROUNDPLANE_CALLER_KEY_FILE="",
        GROUNDPLANE_WATCH_NAMESPACES="search, agents",
        **IN_A_POD,
    )

    assert (settings.kubernetes_host, settings.kubernetes_port) == ("10.96.0.1", 443)
    assert parse_namespaces(settings.namespaces) == ("agents", "search")


@pytest.mark.parametrize("text", ["Agents", "a,,b", "a b", "*", ",", "a" * 64])
def test_a_namespace_that_cannot_be_one_is_a_fault(text):
    """The router would watch a path that does not exist."""
    with pytest.raises(InvalidInput, match="namespace"):
        parse_namespaces(text)
