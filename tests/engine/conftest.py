"""Fixtures of the engine tests: the shared real servers."""

from tests.support.llama import llama, llama_pool

__all__ = ["llama", "llama_pool"]
