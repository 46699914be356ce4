"""Shipped rewards for how an episode went: its format, its length, its tool calls, what its tests said."""

from __future__ import annotations

import re

from storage.records import Scenario, Trajectory
from tasks.grpo.overlong import length_penalty
from tasks.rewards.programmatic import Reward


def format_share(trajectory: Trajectory, scenario: Scenario, pattern: str) -> Reward:
    """Share of the policy's replies that match `pattern` as a whole; a reply of tool calls alone counts as
    empty text. Without a reply there is nothing to tell, so that the score is null."""
    replies = [m.content or "" for m in trajectory.messages if m.role == "assistant"]
    if not replies:
        return Reward(None, explanation="the policy did not reply")
    good = sum(re.fullmatch(pattern, reply, re.DOTALL) is not None for reply in replies)
    return Reward(good / len(replies), {"replies": len(replies)}, f"{good} of {len(replies)} replies match")


def length_shaping(trajectory: Trajectory, scenario: Scenario, limit: int, buffer: int) -> Reward:
    """0 up to limit - buffer sampled tokens, then linearly down to -1 at `limit`, and -1 beyond: DAPO
    (arXiv 2503.14476), section 3.4. To be added to another reward."""
    if not 1 <= buffer <= limit:
        raise ValueError(f"buffer must be of 1 to limit tokens, not {buffer} with limit {limit}")
    sampled = sum(trajectory.mask)
    return Reward(length_penalty(sampled, limit, buffer), {"sampled_tokens": sampled})


def tool_success(trajectory: Trajectory, scenario: Scenario) -> Reward:
    """Share of tool answers that are no errors; 1.0 where no tool was called. An answer that begins with
    "error", in any case, is one, as in `rollmill ask tool_failures`."""
    answers = [m.content or "" for m in trajectory.messages if m.role == "tool"]
    failed = sum(answer.lower().startswith("error") for answer in answers)
    share = (len(answers) - failed) / len(answers) if answers else 1.0
    return Reward(share, {"tool_calls": len(answers), "tool_errors": failed})


def outcome(
    trajectory: Trajectory, scenario: Scenario, metric: str, total: str | None = None, threshold: float = 1.0
) -> Reward:
    """What the environment counted, such as the tests that passed: 1.0 where `metric` reaches `threshold`,
    else 0.0; with `total`, the share of that metric instead. Null where the environment did not report it."""
    missing = [name for name in (metric, total) if name is not None and name not in trajectory.metrics]
    if missing:
        return Reward(None, explanation=f"the environment reported no metric {', '.join(missing)}")
    value = trajectory.metrics[metric]
    if total is None:
        return Reward(float(value >= threshold), {metric: value})
    whole = trajectory.metrics[total]
    if whole <= 0:
        return Reward(None, explanation=f"{total} is {whole:g}: there is nothing to take a share of")
    return Reward(value / whole, {metric: value, total: whole})
