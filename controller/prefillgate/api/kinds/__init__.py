"""The custom resources: their names, types, conditions and reasons, and the CRDs that an API server keeps them by."""
