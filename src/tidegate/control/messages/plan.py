"""The plan of a job: its vertices and how rows get from one to the other."""

from __future__ import annotations

from msgspec import Struct


class JobPlanInput(Struct, frozen=True, kw_only=True):
    """Rows that arrive from another vertex. `ship_strategy` is `HASH`, `FORWARD`, `RESCALE` or `BROADCAST`."""

    num: int
    id: str
    ship_strategy: str
    exchange: str = "blocking"
    """Spark writes the rows of a shuffle before it reads them."""


class JobPlanNode(Struct, frozen=True, kw_only=True):
    """A vertex. `description` is HTML, as in Flink."""

    id: str
    parallelism: int
    operator: str = ""
    operator_strategy: str = ""
    description: str
    inputs: list[JobPlanInput]
    optimizer_properties: str = "{}"


class JobPlan(Struct, frozen=True, kw_only=True):
    """The vertices, sources first."""

    jid: str
    name: str
    type: str = "STREAMING"
    nodes: list[JobPlanNode]


class JobPlanInfo(Struct, frozen=True):
    plan: JobPlan
