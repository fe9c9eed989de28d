"""Fixtures of the tests of live logs: the shared real servers."""

from tests.support.llama import llama_pool

__all__ = ["llama_pool"]
