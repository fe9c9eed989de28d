"""A Kubernetes API server in this process, over loopback, that can be made to fail: for what a real one will not do
when asked. `tests/contract_kube` holds it against the real one."""

from tests.support.fake_api.faults import Fault
from tests.support.fake_api.server import FakeApi
from tests.support.fake_api.store import Resource, Store

__all__ = ["FakeApi", "Fault", "Resource", "Store"]
