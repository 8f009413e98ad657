"""The Open Inference Protocol (KServe v2) over gRPC: its messages, and how they carry a chat.

The wrapper serves it and the worker's client speaks it. Nothing imports this room unless a run task or a
command line asks for gRPC; it needs protobuf, of the extra `grpc`.
"""
