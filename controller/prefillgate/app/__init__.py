"""The process of the controller: what looks at a cluster, asks `prefillgate.reconcile`, and carries out what it says.

No decision is made here. `seams` holds what the parts of it know of each other.
"""
