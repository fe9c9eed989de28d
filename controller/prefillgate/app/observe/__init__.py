"""The eyes of the controller: what a look at a line finds in the cluster, out of reflectors that keep little of it."""

from prefillgate.app.observe.observer import ClusterObserver as ClusterObserver
from prefillgate.app.observe.settings import ObserveSettings as ObserveSettings
from prefillgate.app.observe.settings import ProbePace as ProbePace
