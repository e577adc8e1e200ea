"""Messages of Flink's REST about its cluster. Here that is the jobs of a server, and the hosts that run their tasks."""

from __future__ import annotations

from msgspec import Struct, field


class ClusterOverview(Struct, frozen=True, kw_only=True, rename="kebab"):
    """Hosts, slots and jobs. The versions are tidegate's."""

    taskmanagers: int
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    flink_version: str
    flink_commit: str


class DashboardFeatures(Struct, frozen=True, kw_only=True, rename="kebab"):
    """What Flink's dashboard must not offer: the server has no such requests."""

    web_submit: bool = False
    web_cancel: bool = False
    web_rescale: bool = False
    web_history: bool = False


class DashboardConfiguration(Struct, frozen=True, kw_only=True, rename="kebab"):
    """How Flink's dashboard behaves. Times in ms."""

    refresh_interval: int = 3000
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: DashboardFeatures = DashboardFeatures()


class ConfigurationEntry(Struct, frozen=True):
    key: str
    value: str


class ExecutionConfigInfo(Struct, frozen=True, kw_only=True, rename="kebab"):
    """`user_config` has the options that were set."""

    execution_mode: str = "PIPELINED"
    restart_strategy: str
    job_parallelism: int
    object_reuse_mode: bool = False
    user_config: dict[str, str]


class JobConfigInfo(Struct, frozen=True, kw_only=True):
    jid: str
    name: str
    execution_config: ExecutionConfigInfo = field(name="execution-config")


class HardwareDescription(Struct, frozen=True, kw_only=True, rename="camel"):
    """Of a host. Null: not known to the driver."""

    cpu_cores: int | None = None
    physical_memory: int | None = None
    free_memory: int | None = None
    managed_memory: int | None = None


class TaskManagerInfo(Struct, frozen=True, kw_only=True, rename="camel"):
    """A host that runs tasks. Its id names the directory with their state, and the boot of the machine. Null: not known."""

    id: str
    path: str
    """The name of the host."""
    data_port: int | None = None
    jmx_port: int | None = None
    time_since_last_heartbeat: int | None = None
    slots_number: int
    free_slots: int
    total_resource: dict[str, float] | None = None
    free_resource: dict[str, float] | None = None
    hardware: HardwareDescription = HardwareDescription()
    memory_configuration: dict[str, int] | None = None
    blocked: bool = False


class TaskManagersInfo(Struct, frozen=True):
    taskmanagers: list[TaskManagerInfo]
