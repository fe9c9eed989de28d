"""The evidence store."""
