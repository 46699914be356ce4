"""The tiny policy and its batch."""

from tests.grpo.policies import batch, policy, trained_policy

__all__ = ["batch", "policy", "trained_policy"]
