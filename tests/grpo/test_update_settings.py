"""Settings of an update that would do nothing, or harm, are refused with what to do instead."""

import pytest
from pydantic import ValidationError

from tasks.settings import UpdateSettings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"loss": "dr_grpo"}, "needs constant_length"),
        ({"constant_length": 8}, "constant_length does nothing here"),
        ({"kl_estimator": "k2"}, "kl_estimator does nothing here, since kl_coefficient is 0; raise it"),
        ({"kl_placement": "advantage"}, "kl_placement does nothing here"),
        ({"kl_coefficient": 0.1, "kl_estimator": "k1"}, "set kl_placement to `advantage`"),
        ({"loss": "reinforce", "clip_low": 0.1}, "clip_low does nothing here"),
        ({"loss": "cispo", "dual_clip": 3.0}, "dual_clip does nothing here"),
        ({"loss": "reinforce", "epochs": 2}, "set optimizer_steps and epochs to 1"),
        ({"correction": "none", "correction_bound": 3.0}, "correction_bound does nothing here"),
        ({"correction": "none", "correction_low": 0.5}, "correction_low does nothing here"),
    ],
)
def test_a_useless_combination_is_refused(given, message):
    with pytest.raises(ValidationError, match=message):
        UpdateSettings(**given)


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"loss": "dr_grpo", "constant_length": 64},
        {"loss": "reinforce"},
        {"kl_coefficient": 0.1, "kl_estimator": "k1", "kl_placement": "advantage"},
        {"correction": "none"},
    ],
)
def test_settings_survive_being_stored_and_read(given):
    settings = UpdateSettings(**given)
    assert UpdateSettings(**settings.model_dump(mode="json")) == settings
