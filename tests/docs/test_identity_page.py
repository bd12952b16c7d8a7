"""The page about callers says what the code does."""

import re
from pathlib import Path

import pytest

from groundplane.process.settings import settings_table
from groundplane_router import token_checks
from groundplane_router.kubernetes import failures, jwks, list_watch
from groundplane_router.settings import RouterSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "identity.md").read_text()


@pytest.mark.parametrize(
    "text",
    [
        f"at most {token_checks.CACHE_SECONDS:g} seconds",
        f"{token_checks.CACHED_TOKENS:,} tokens of each kind",
        f"`timeout` ({token_checks.CHECK_SECONDS:g} s)",
        f"read every {jwks.REFRESH_SECONDS / 60:g} minutes",
        f"published key of {jwks.MIN_RSA_BITS} bits or more",
        f"about {list_watch.WATCH_SECONDS[1] + 10} s while the API server answers",
        f"503 `{token_checks.UNAVAILABLE_CODE}`",
        f"`{failures.BAD_ANSWER}`",
        f"`{failures.NOT_READABLE}`",
        f"`{failures.timed_out().detail}`",
        f"`{failures.unreachable().detail}`",
    ],
)
def test_figures_and_codes_are_those_of_the_code(text):
    """Alerts and callers' retries are written after this page."""
    assert text in PAGE


def test_keys_are_kept_for_the_hour_that_is_promised():
    """The one figure of the page that is a word."""
    assert "all are\nserved for an hour" in PAGE
    assert jwks.KEEP_SECONDS == 3_600


def test_every_setting_that_the_page_names_exists():
    """A renamed one would be set in vain."""
    known = {row.variable for row in settings_table(RouterSettings)} | {"GROUNDPLANE_TOKEN_FILE"}

    assert set(re.findall(r"GROUNDPLANE_[A-Z_]+", PAGE)) <= known
