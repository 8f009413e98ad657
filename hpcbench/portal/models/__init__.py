"""Answers of the portal's API; the OpenAPI description and the web client's types are made from these.

Times are seconds since the epoch, durations seconds, shares from 0 to 1. Nothing here names a file that a
client could ask for: clients send ids.
"""
