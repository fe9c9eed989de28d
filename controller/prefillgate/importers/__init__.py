"""Reading what other tools wrote: one file per format, each a `Format` of `prefillgate.importers.base`."""
