"""Parsing ONNX models. The package onnx is imported only when a model has to be looked into."""

from typing import Any

from ars.errors import MissingPackage

__all__ = ["parse_onnx"]


def parse_onnx(content: bytes) -> Any | None:
    """The model in the bytes of an ONNX file, an onnx.ModelProto without its external data, or None."""
    try:
        import onnx
    except ImportError as error:
        raise MissingPackage("onnx", "cpu") from error
    try:
        return onnx.ModelProto.FromString(content)
    except Exception:  # protobuf has errors of its own
        return None
