"""A pass-through in front of a server that keeps request bodies as the cases of a replay set."""
