"""Asking a process whether it is ready."""

import httpx

MAX_SHOWN_CHARACTERS = 200
_REQUEST_SECONDS = 2.0


class Readiness:
    """Asks /readyz, or another path, of processes of this machine, past any proxy that the environment names."""

    def __init__(self) -> None:
        self._http = httpx.AsyncClient(trust_env=False, timeout=_REQUEST_SECONDS)

    async def ask(self, url: str) -> tuple[bool, str]:
        """Return whether `url` answers 200, and what it answered, in short."""
        try:
            response = await self._http.get(url)
        except httpx.TransportError:
            return False, "does not answer yet"
        return response.status_code == 200, " ".join(response.text.split())[:MAX_SHOWN_CHARACTERS]

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
