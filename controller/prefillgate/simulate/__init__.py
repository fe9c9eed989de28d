"""The simulated engine: llama-server's HTTP API over a real prompt-cache model, with planted faults."""
