"""Maximum flow and minimum cut in a directed graph: Dinic's algorithm.

E. A. Dinic, "Algorithm for solution of a problem of maximum flow in networks with power
estimation", Soviet Mathematics Doklady 11 (1970), pp. 1277-1280.
"""

from __future__ import annotations

from collections import deque

__all__ = ["Network"]


class Network:
    """Vertices are numbers from 0; capacities are integers, `Network.INFINITE` for no bound."""

    INFINITE = 1 << 60

    def __init__(self, vertices: int) -> None:
        self.out: list[list[int]] = [[] for _ in range(vertices)]
        self.head: list[int] = []  # of each arc; arc k ^ 1 is its reverse
        self.room: list[int] = []  # what an arc can still take

    def add(self, tail: int, head: int, capacity: int) -> None:
        """An arc."""
        self.out[tail].append(len(self.head))
        self.head.append(head)
        self.room.append(capacity)
        self.out[head].append(len(self.head))
        self.head.append(tail)
        self.room.append(0)

    def _levels(self, source: int, sink: int) -> list[int] | None:
        level = [-1] * len(self.out)
        level[source] = 0
        queue = deque([source])
        while queue:
            v = queue.popleft()
            for arc in self.out[v]:
                w = self.head[arc]
                if self.room[arc] and level[w] < 0:
                    level[w] = level[v] + 1
                    if w == sink:
                        return level
                    queue.append(w)
        return None

    def _augment(self, source: int, sink: int, level: list[int], next_arc: list[int]) -> int:
        """One path from source to sink along rising levels: how much it took."""
        path: list[int] = []
        v = source
        while v != sink:
            arcs = self.out[v]
            while next_arc[v] < len(arcs):
                arc = arcs[next_arc[v]]
                w = self.head[arc]
                if self.room[arc] and level[w] == level[v] + 1:
                    path.append(arc)
                    v = w
                    break
                next_arc[v] += 1
            else:
                if not path:
                    return 0
                arc = path.pop()
                v = self.head[arc ^ 1]
                next_arc[v] += 1
        amount = min(self.room[arc] for arc in path)
        for arc in path:
            self.room[arc] -= amount
            self.room[arc ^ 1] += amount
        return amount

    def maximum(self, source: int, sink: int) -> int:
        """The value of a maximum flow, which is that of a minimum cut."""
        total = 0
        while (level := self._levels(source, sink)) is not None:
            next_arc = [0] * len(self.out)
            while amount := self._augment(source, sink, level, next_arc):
                total += amount
        return total

    def far(self, sink: int) -> set[int]:
        """The sink's side of a minimum cut, after `maximum`: of several cuts, the one that is
        nearest to the sink."""
        found = {sink}
        stack = [sink]
        while stack:
            for arc in self.out[stack.pop()]:
                w = self.head[arc]
                if self.room[arc ^ 1] and w not in found:
                    found.add(w)
                    stack.append(w)
        return found
