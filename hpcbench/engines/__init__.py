"""Engines: how to start a server that speaks OpenAI's API on a Unix socket.

Each is a class with one method, `launch_command`. Naming an engine imports none of its dependencies.
"""
