"""What the agent acts in. An environment plays one episode: `reset`, `step` until done, `close`."""

from tasks.environments.base import Environment, Step

__all__ = ["Environment", "Step"]
