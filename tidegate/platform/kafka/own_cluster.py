"""
Whether the brokers that answer are those of this folder's embedded stack. A setting leads elsewhere, or another server has taken the port
of a Kafka that has ended.

Law: while the Kafka or the Valkey of this folder runs, a command that reaches another cluster says so, once in a process, and deletes
nothing there. Clusters are distinguished by their ids, not by addresses, of which a server has several.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from ordering.errors import RefusedError
from tidegate.platform.stack.this_folder import find_stack

_warned: set[str] = set()


def check_own_cluster(bootstrap: str, read_cluster_id: Callable[[], str], *, deletes: bool) -> None:
    """
    Compare the cluster that has answered at *bootstrap* with the stack of this folder, if that runs; warn if it is another. Raises
    RefusedError (TG-STACK-OTHER): it is another, and the command *deletes* something.
    """
    stack = find_stack()
    # A stack made by an earlier version has no id.
    if stack is None or not stack.id or (cluster_id := read_cluster_id()) == stack.id:
        return
    what = (
        f"the Kafka cluster that answers at {bootstrap} ({cluster_id or 'without an id'}) is not that of this folder's stack ({stack.id})"
    )
    if bootstrap.replace("localhost", "127.0.0.1") == stack.bootstrap:
        fix, example = "its Kafka has ended, and another has its port: start it again, at a port of its own", "tidegate up"
    else:
        fix, example = "for this folder's leave out kafka.bootstrap; if the other one is meant, first stop this folder's", "tidegate down"
    if deletes:
        raise RefusedError(f"{what}: nothing is deleted", code="TG-STACK-OTHER", where=str(stack.directory), fix=fix, example=example)
    if cluster_id not in _warned:
        _warned.add(cluster_id)
        # As in tidegate.basics.unnamed_servers, not by logs that may not be configured yet.
        logging.getLogger("tidegate").warning("TG-STACK-OTHER: %s. %s: %s", what, fix, example)
