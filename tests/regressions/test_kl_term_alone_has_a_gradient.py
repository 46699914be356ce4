"""L4 (SkyRL 1353): the KL term was computed from detached numbers, and its gradient was 0."""

from dataclasses import replace

import pytest
from pydantic import ValidationError

from tasks.settings import UpdateSettings
from tests.grpo import reference
from tests.grpo.policies import assert_same_gradients, update


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_kl_term_alone_has_a_gradient(policy, batch, estimator):
    quiet = [replace(sequence, advantage=0.0) for sequence in batch]
    with policy.disable_adapter():
        base = {s.trajectory_id: reference.token_logprobs(policy, s).detach() for s in quiet}
    expected = reference.loss(policy, quiet, kl=0.3, estimator=estimator, reference=base)
    theirs, norm = reference.gradients(policy, expected)
    result, ours, _ = update(policy, quiet, kl_coefficient=0.3, kl_estimator=estimator)
    assert result.steps[0].skipped is None
    assert norm > 1e-4
    assert result.steps[0].grad_norm == pytest.approx(norm, rel=1e-6)
    assert_same_gradients(ours, theirs)


def test_a_kl_term_whose_gradient_is_zero_on_average_is_refused():
    with pytest.raises(ValidationError, match="mean zero"):
        UpdateSettings(kl_coefficient=0.1, kl_estimator="k1")
