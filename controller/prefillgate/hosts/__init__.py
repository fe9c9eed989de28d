"""Hosts of model servers that the gate itself may start (the embedded llama.cpp)."""
