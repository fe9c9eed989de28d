"""prefillgate: a promotion gate for LLM serving profiles that counts prefills, not requests."""

__version__ = "0.1.0"
