"""Fixtures of the recorder's tests: the shared real servers."""

from tests.support.llama import llama, llama_pool

__all__ = ["llama", "llama_pool"]
