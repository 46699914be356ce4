"""The tiny policy and its batch."""

from hypothesis import settings

from tests.grpo.policies import batch, policy, trained_policy

__all__ = ["batch", "policy", "trained_policy"]

settings.register_profile("shared machine", deadline=None)  # other work may take the cores at any time
settings.load_profile("shared machine")
