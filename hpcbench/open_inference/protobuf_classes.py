"""The classes of `inference.proto`, made when this module is imported.

They live in a pool of their own: a client of Triton in the same process registers the same names in
protobuf's default pool, which refuses a second definition. Code that protoc writes would be tied to one
version of protobuf; the images that the wrapper runs in have many.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE: Final = "inference.GRPCInferenceService"
"""Full name of the service."""

STREAM: Final = f"/{SERVICE}/ModelStreamInfer"
"""Path of the method for streams."""

DESCRIPTION: Final = "inference.binpb"
"""Result of protoc for `inference.proto`: a FileDescriptorSet, beside this module."""


def _pool() -> Any:
    pool = descriptor_pool.DescriptorPool()
    data = files("hpcbench.open_inference").joinpath(DESCRIPTION).read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


POOL: Final = _pool()
"""Descriptions of all messages and of the service."""


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))


ServerLiveRequest = _message("ServerLiveRequest")
ServerLiveResponse = _message("ServerLiveResponse")
ServerReadyRequest = _message("ServerReadyRequest")
ServerReadyResponse = _message("ServerReadyResponse")
ModelReadyRequest = _message("ModelReadyRequest")
ModelReadyResponse = _message("ModelReadyResponse")
ServerMetadataRequest = _message("ServerMetadataRequest")
ServerMetadataResponse = _message("ServerMetadataResponse")
ModelMetadataRequest = _message("ModelMetadataRequest")
ModelMetadataResponse = _message("ModelMetadataResponse")
ModelInferRequest = _message("ModelInferRequest")
ModelInferResponse = _message("ModelInferResponse")
ModelStreamInferResponse = _message("ModelStreamInferResponse")
