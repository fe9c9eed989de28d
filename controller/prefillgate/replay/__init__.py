"""Replay sets, checks and the runner."""
