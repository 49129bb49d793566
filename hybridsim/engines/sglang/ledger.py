"""What the tree holds, split into what may be evicted and what a request has locked."""

from hybridsim.engines.sglang.node import Kind, Node


class Ledger:
    """Tokens (KV) or states by kind, kept up to date with every change."""

    def __init__(self) -> None:
        self._evictable = [0, 0, 0]
        self._protected = [0, 0, 0]

    def evictable(self, kind: Kind) -> int:
        return self._evictable[kind]

    def protected(self, kind: Kind) -> int:
        return self._protected[kind]

    def held(self, kind: Kind) -> int:
        return self._evictable[kind] + self._protected[kind]

    def credit(self, kind: Kind, node: Node) -> None:
        """New data on `node`."""
        side = self._protected if node.parts[kind].locks else self._evictable
        side[kind] += node.amount(kind)

    def debit(self, kind: Kind, amount: int) -> None:
        """Unlocked data is gone."""
        self._evictable[kind] -= amount

    def protect(self, kind: Kind, amount: int) -> None:
        """Move `amount` from evictable to protected, back when negative."""
        self._evictable[kind] -= amount
        self._protected[kind] += amount
