"""Asking a process whether it is ready."""

import httpx

MAX_SHOWN_CHARACTERS = 200
_REQUEST_SECONDS = 2.0
_SEMANTIC_METRIC = "grounding_semantic_active"


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

    async def is_semantic(self, router_url: str) -> bool | None:
        """Return whether the router at `router_url` reports semantic grounding as active, None if it does not say."""
        try:
            response = await self._http.get(f"{router_url}/metrics")
        except httpx.TransportError:
            return None
        lines = response.text.split("\n")
        return next((float(line.split()[1]) == 1 for line in lines if line.startswith(f"{_SEMANTIC_METRIC} ")), None)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
