"""The cluster of these tests: one control plane and one node for the folder, a namespace for each test."""

from tests.support.cluster.fixtures import cluster, cluster_node, cluster_plane, namespace

__all__ = ["cluster", "cluster_node", "cluster_plane", "namespace"]
