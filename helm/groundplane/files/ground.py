"""What `helm test` runs in a pod: index one document and ask for it, with nothing but the pod's projected token."""

import sys
import time

from groundplane import Client, DocumentInput, NotAuthorised, RequestRefused, RetrievalUnavailable, ServiceUnreachable
from groundplane.wire.public import IndexAnswer

WAIT_SECONDS = 180  # a corpus that was made for the test has to start
DOCUMENT = DocumentInput(
    id="groundplane/helm-test",
    text="The blue heron of gate seven keeps the spare key of the greenhouse under the third flower pot.",
)
QUESTION = "where is the spare key of the greenhouse?"


def await_index(client: Client) -> IndexAnswer:
    """Index the document as soon as the corpus takes it. What was refused for good, or for too long, ends the test."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            return client.index_batch([DOCUMENT])
        except (NotAuthorised, RetrievalUnavailable, ServiceUnreachable) as error:
            if time.monotonic() >= deadline:
                raise
            print(f"not yet: {error.message}", flush=True)
        time.sleep(2)


def main() -> int:
    """Return 0 if the document is found."""
    with Client.from_environment() as client:
        indexed = await_index(client)
        print(f"indexed: {indexed.results[0].outcome}", flush=True)
        try:
            answer = client.ground(QUESTION, min_position=indexed.position)
            found = [hit.doc_id for hit in answer.hits]
            print(
                f"asked: status {answer.status}, tier {answer.tier}, semantic {answer.semantic}, hits {found}",
                flush=True,
            )
            return 0 if DOCUMENT.id in found else 1
        finally:
            try:
                client.delete_document(DOCUMENT.id)
            except RequestRefused as error:
                print(f"the document stays: {error.message}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
