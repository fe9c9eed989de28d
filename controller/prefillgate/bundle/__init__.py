"""The evidence bundle: a store as plain files that a stranger can read, and whose verdict anybody can recompute.

`write_bundle` makes one of a journal, `check_bundle` recomputes everything that can be recomputed of one. A bundle
without a signature shows that its parts fit each other; who made it is shown by a signature alone.
"""
