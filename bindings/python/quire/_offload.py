"""Blocking calls of collections and caches under asyncio: threads. Those that wait for another caller's answer have
threads of their own, so that they never keep the call waiting that would wake them."""
from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, TypeVar

T = TypeVar("T")
WORKERS, WAITERS = 16, 256
_pools: Dict[str, ThreadPoolExecutor] = {}

os.register_at_fork(after_in_child=_pools.clear)  # the threads stayed in the parent


async def offload(call: Callable[..., T], *arguments: Any, waits: bool = False, kept: object = None,
                  **named: Any) -> T:
    """kept: lives as long as the call."""
    name = "quire-wait" if waits else "quire-work"
    pool = _pools.get(name)
    if pool is None:
        pool = _pools[name] = ThreadPoolExecutor(WAITERS if waits else WORKERS, thread_name_prefix=name)
    return await asyncio.get_running_loop().run_in_executor(pool, lambda: (kept, call(*arguments, **named))[1])
