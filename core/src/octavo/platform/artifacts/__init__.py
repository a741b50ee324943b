"""The artifact store: what platforms compile or pack, kept by what it depends on, and found again.

`key` says what an artifact is and when two are the same, `entry` is the file that one lies in, `store` finds, makes and
evicts them, `inspect` and `bundle` are what ``octavo artifacts`` does, `digests` names checkpoints by their content.
"""

from octavo.platform.artifacts.entry import ArtifactWriter, Build
from octavo.platform.artifacts.key import ArtifactKey, Verdict, judge
from octavo.platform.artifacts.store import Artifact, ArtifactPolicy, ArtifactStore

__all__ = [
    "Artifact", "ArtifactKey", "ArtifactPolicy", "ArtifactStore", "ArtifactWriter", "Build", "Verdict", "judge",
]  # fmt: skip
