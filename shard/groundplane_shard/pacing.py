"""Letting searches through while documents are prepared and applied in the event loop."""

import asyncio

PASSES = 8


async def let_others_run() -> None:
    """Let the event loop pass several times before the next step of work.

    A request crosses it about that often (bytes read, parsed, handled, answered); with one pass between two steps a search
    would wait for a step at each crossing. An idle pass takes some ten microseconds.
    """
    for _ in range(PASSES):
        await asyncio.sleep(0)
