"""The grep tier: literal keywords in the files beneath `FACE_DCI_CORPUS_DIR`. Start at `engine`."""

from groundplane_router.grep.budget import GrepLimits
from groundplane_router.grep.engine import GrepAnswer, GrepEngine
from groundplane_router.grep.ranking import GrepHit

__all__ = ["GrepAnswer", "GrepEngine", "GrepHit", "GrepLimits"]
