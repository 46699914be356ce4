"""R4 (verl 984): a metric named `pass@1` ended training in the metrics server's error."""

import re

import pytest

from storage.tracking import metric_name


@pytest.mark.parametrize("name", ["pass@1", "a b", "reward/ä", "x" * 400, "100%", "a\nb"])
def test_every_name_becomes_one_that_mlflow_takes(name):
    assert re.fullmatch(r"[\w\-. :/]{1,250}", metric_name(name))
