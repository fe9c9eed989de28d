"""The Kubernetes API and the loop over it: the one place that knows `kubernetes.aio`, and what is built on it.

`access` finds the cluster and the credentials, `client` speaks to it, `errors` is all that can go wrong. `elector`,
`reflector`, `queue`, `status` and `events` are the parts of a controller; what is decided stands elsewhere. Objects are
plain dicts as the API server sent them.
"""
