"""The champion gate: is the retrained policy better on the held-out scenarios, beyond chance?

Both policies play the same scenarios, so that they are compared scenario by scenario. The test is the paired
t-test on each scenario's mean reward (Student, "The probable error of a mean", 1908): its confidence interval
of the mean difference must lie above the margin.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from storage.catalog import connect
from storage.store import Store
from tasks.settings import GateSettings

PAIRS = """
    SELECT
        scenario_id,
        avg(reward) FILTER (step = $champion AND NOT is_failure(stop_reason)),
        avg(reward) FILTER (step = $candidate AND NOT is_failure(stop_reason))
    FROM rewards
    WHERE run = $run AND split = 'validation' AND scorer = $scorer AND step IN ($champion, $candidate)
    GROUP BY scenario_id
    ORDER BY scenario_id
"""


@dataclass(frozen=True)
class Comparison:
    """Validation rewards of two policies on the same scenarios.

    Attributes:
        scenarios: pairs that were compared.
        unusable: scenarios without a usable reward of either policy; they are not compared.
        champion, candidate: mean over scenarios of the mean reward.
        low, high: confidence interval of candidate - champion; the whole line where there is no spread to
            estimate it from (fewer than two pairs).
    """

    scenarios: int
    unusable: int
    champion: float
    candidate: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        return self.candidate - self.champion


def compare_steps(
    store: Store, run: str, scorer: str, *, champion: int, candidate: int, confidence: float
) -> Comparison:
    """Compare two steps of a run, both validated, by the rewards of one scorer."""
    with connect(store.root) as connection:
        rows = connection.execute(
            PAIRS, {"run": run, "scorer": scorer, "champion": champion, "candidate": candidate}
        ).fetchall()
    pairs = [(before, after) for _, before, after in rows if before is not None and after is not None]
    return compare_pairs(pairs, unusable=len(rows) - len(pairs), confidence=confidence)


def compare_pairs(pairs: list[tuple[float, float]], *, unusable: int, confidence: float) -> Comparison:
    """Compare (champion, candidate) rewards, one pair a scenario."""
    from scipy.stats import ttest_rel

    champion, candidate = [p[0] for p in pairs], [p[1] for p in pairs]
    low, high = -math.inf, math.inf
    if len(pairs) > 1:
        differences = {after - before for before, after in pairs}
        if len(differences) == 1:  # no spread: the interval is a point, which the formula gives as NaN
            [low] = [high] = differences
        else:
            low, high = ttest_rel(candidate, champion).confidence_interval(confidence)
    return Comparison(
        scenarios=len(pairs),
        unusable=unusable,
        champion=_mean(champion),
        candidate=_mean(candidate),
        low=float(low),
        high=float(high),
    )


def decide(comparison: Comparison, gate: GateSettings) -> tuple[bool, str]:
    """Whether the candidate is to be promoted, and the reason in words."""
    total = comparison.scenarios + comparison.unusable
    measured = (
        f"{comparison.candidate:.4f} against {comparison.champion:.4f} on {comparison.scenarios} held-out "
        f"scenarios: {comparison.difference:+.4f}, {gate.confidence:.0%} confidence interval "
        f"[{comparison.low:.4f}, {comparison.high:.4f}]"
    )
    if not total:
        return False, "no held-out scenario was played by both policies"
    if comparison.unusable > gate.max_unusable * total:
        return False, (
            f"{comparison.unusable} of {total} held-out scenarios have no usable reward, more than "
            f"gate.max_unusable = {gate.max_unusable} allows"
        )
    if comparison.low > gate.margin:
        return True, f"better than the champion: {measured}"
    return False, f"not better than the champion by more than {gate.margin:g}: {measured}"


def _mean(values: list[float]) -> float:
    return math.fsum(values) / len(values) if values else math.nan
