"""The pure core: cells to prefill units, statistics, quality, decision.

Nothing here reads a clock, does I/O or logs; only the standard library is imported.
Every number comes from the cells handed in, so a decision can be recomputed anywhere.
"""
