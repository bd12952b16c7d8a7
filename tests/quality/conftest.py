"""Collections are embedded once a session."""

from functools import cache

import pytest

from tests.quality.collections import COLLECTIONS, load_beir
from tests.quality.ranking import embed_all


@cache
def _collection(name):
    collection = load_beir(COLLECTIONS / name)
    return collection, embed_all(collection.documents, [question.text for question in collection.questions])


@pytest.fixture(scope="session")
def collection_of():
    """Return a function from a collection's name to its documents, questions and vectors; skips where it is absent."""

    def get(name):
        if not (COLLECTIONS / name / "corpus.jsonl").exists():
            pytest.skip(f"judged collection {name} is not here: set GROUNDPLANE_TEST_COLLECTIONS to where it is")
        return _collection(name)

    return get
