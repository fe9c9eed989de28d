"""The custom resource definitions of manifests/crds in a cluster of the tests."""

from __future__ import annotations

from tests.support.cluster.api import path_of
from tests.support.cluster.control_plane import ControlPlane
from tests.support.kinds import OF_KIND, ROOT, Object

FOLDER = ROOT / "manifests" / "crds"
SERVED = {"Established": "True", "NamesAccepted": "True"}


def install_crds(plane: ControlPlane) -> None:
    """As a person does it, refusing whatever the server does not know, until all of them are served."""
    done = plane.kubectl("apply", "--server-side", "--validate=strict", "-f", str(FOLDER))
    assert done.returncode == 0, done.stderr
    for resource in OF_KIND.values():
        names = resource.names
        path = path_of("customresourcedefinitions", names.crd_name, group="apiextensions.k8s.io")
        plane.api().wait(path, lambda found: standing(found) == SERVED)
        plane.api().wait(path_of(names.plural, group="prefillgate.io", version="v1alpha1"), bool)


def standing(crd: Object) -> dict[str, str]:
    """Status by type of the conditions of a definition."""
    return {each["type"]: each["status"] for each in crd.get("status", {}).get("conditions") or ()}
