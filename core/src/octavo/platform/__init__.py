"""The plugin API: the only part of core, with the graph and the weight formats, that a platform may import.

Start reading at `contract`; then `step` (what passes while serving), `info` and `limits` (what a platform declares),
`negotiate` (how it answers for a model) and `reference` (what it can start from).
"""

from octavo.config import Settings
from octavo.errors import ArtifactError, ArtifactMissing, DeviceOutOfMemory, PlatformUnavailable, UnsupportedFeature
from octavo.platform.artifacts import (
    Artifact,
    ArtifactKey,
    ArtifactPolicy,
    ArtifactStore,
    ArtifactWriter,
    Build,
    Verdict,
)  # fmt: skip
from octavo.platform.bench import BenchDevice, BenchExecutable, KernelTime, PartTime, StepTimes, open_bench
from octavo.platform.buckets import Bucket, BucketPolicy, BucketSet, powers_up_to
from octavo.platform.contract import (
    Device,
    Executable,
    KVStore,
    MemoryReport,
    Platform,
    Progress,
    Rank,
    Sampler,
)  # fmt: skip
from octavo.platform.faults import FAULTS, FaultyDevice
from octavo.platform.hookspecs import hookimpl
from octavo.platform.host import host_memory
from octavo.platform.info import CONTRACT, Capabilities, DeviceInfo, PlatformInfo, Probe
from octavo.platform.layout import KVLayout
from octavo.platform.limits import Limits
from octavo.platform.negotiate import (
    Decision,
    ModelFacts,
    Plan,
    PlanRequest,
    Unsupported,
    negotiate_by_declaration,
)  # fmt: skip
from octavo.platform.reference import (
    REFERENCE_CAPABILITIES,
    ReferenceDevice,
    ReferenceExecutable,
    ReferenceKVStore,
)  # fmt: skip
from octavo.platform.step import Samples, SamplingBatch, StepInput, StepOutput

__all__ = [
    "CONTRACT", "FAULTS", "REFERENCE_CAPABILITIES", "Artifact", "ArtifactError", "ArtifactKey", "ArtifactMissing",
    "ArtifactPolicy", "ArtifactStore", "ArtifactWriter", "BenchDevice", "BenchExecutable", "Bucket",
    "BucketPolicy", "BucketSet", "Build", "Capabilities", "Decision", "Device", "DeviceInfo",
    "DeviceOutOfMemory", "Executable", "FaultyDevice", "KVLayout", "KVStore", "KernelTime", "Limits",
    "MemoryReport", "ModelFacts", "PartTime", "Plan", "PlanRequest", "Platform", "PlatformInfo",
    "PlatformUnavailable", "Probe", "Progress", "Rank", "ReferenceDevice", "ReferenceExecutable",
    "ReferenceKVStore", "Sampler", "Samples", "SamplingBatch", "Settings", "StepInput", "StepOutput",
    "StepTimes", "Unsupported", "UnsupportedFeature", "Verdict", "hookimpl", "host_memory",
    "negotiate_by_declaration", "open_bench", "powers_up_to",
]  # fmt: skip
