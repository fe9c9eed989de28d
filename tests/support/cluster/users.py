"""Who may speak to the API server of the tests, each by a token of their own. What they may do is RBAC's affair."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class User:
    """A name as the audit log has it, the token that proves it, and the groups that come with it."""

    name: str
    token: str
    groups: tuple[str, ...] = ()


ADMIN = User("admin", "token-of-admin", ("system:masters",))
"""May do everything: sets up what a test needs."""

GATE = User("prefillgate", "token-of-prefillgate")
"""The controller: what it may do is what its own manifests grant."""

ALICE = User("alice", "token-of-alice", ("people",))
BOB = User("bob", "token-of-bob", ("people",))
"""Two people without any right, until a test grants one."""

NODE = User("node-agent", "token-of-node-agent", ("system:masters",))
"""The node agent. Not an admin's name, so that the audit log tells it from one."""

MANAGER = User("system:kube-controller-manager", "token-of-manager")

USERS = (ADMIN, GATE, ALICE, BOB, NODE, MANAGER)


def tokens_file(users: tuple[User, ...] = USERS) -> str:
    """The users in the form that kube-apiserver's --token-auth-file takes."""
    rows = [f'{user.token},{user.name},uid-{number},"{",".join(user.groups)}"' for number, user in enumerate(users)]
    return "\n".join(rows) + "\n"
