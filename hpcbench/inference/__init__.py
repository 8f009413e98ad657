"""Requests to a model: a client with accurate timing, and a driver of many requests.

`client` sends one request; `drive` sends many, at a concurrency or a rate; `adaptive` searches for the best
concurrency; `rate_limits` keeps to what a gateway allows; `health` reports whether the client kept up;
`compat` computes other kits' figures.
"""
