"""A real Kubernetes control plane for tests, and a node agent that runs pods as processes of this machine."""
