"""The process beside an engine: starts it, ends it, and forwards requests byte for byte.

It runs inside the engine's image, mounted just in time, and needs only pydantic, uvicorn and
aiohttp. The worker on the host side starts it and talks to it through one Unix socket.
"""
