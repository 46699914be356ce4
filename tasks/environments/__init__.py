"""What the agent acts in. An environment plays one episode: `reset`, `step` until done, `close`."""

from tasks.environments.base import Environment, Step
from tasks.environments.tool_environment import ToolEnvironment
from tasks.environments.tools import Tool, ToolError, ToolUnavailable

__all__ = ["Environment", "Step", "Tool", "ToolEnvironment", "ToolError", "ToolUnavailable"]
