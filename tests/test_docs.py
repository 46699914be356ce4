"""What the documentation shows is what there is."""

import re
import sys
from pathlib import Path

import pytest
import yaml

from flows import document_cli
from flows.config import parse_config
from flows.document_config import page
from storage import document_schemas
from storage.catalog import connect
from storage.records import Message, Scenario, ToolCall

ROOT = Path(__file__).parents[1]


def blocks(language: str, page: str = "README.md") -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)


async def test_the_readmes_environment_runs_with_its_config(tmp_path, monkeypatch):
    [code], [config] = blocks("python"), blocks("yaml")
    assert len(code.splitlines()) <= 30
    (tmp_path / "countdown.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "countdown", raising=False)
    assert parse_config(yaml.safe_load(config)).name == "countdown"

    from countdown import Countdown

    game = Countdown()
    await game.reset(Scenario("x", {"start": 3}))
    steps = [await game.step(Message("assistant", reply)) for reply in ("7", "2", "1")]
    assert [step.reward for step in steps] == [-0.1, 0.1, 1.0]
    assert [step.done for step in steps] == [False, False, True]


def test_the_page_of_settings_is_up_to_date():
    assert (ROOT / "docs" / "config.md").read_text() == page(), "run python -m flows.document_config"


def test_the_page_of_commands_is_up_to_date():
    found = (ROOT / "docs" / "cli.md").read_text()
    assert found == document_cli.page(), "run python -m flows.document_cli > docs/cli.md"


def test_the_page_of_columns_and_views_is_up_to_date():
    found = (ROOT / "docs" / "schema.md").read_text()
    assert found == document_schemas.page(), "run python -m storage.document_schemas"


@pytest.mark.parametrize("query", blocks("sql", "docs/sql.md"))
def test_every_query_of_the_cookbook_runs(query, tmp_path):
    with connect(tmp_path) as connection:
        connection.execute(query).fetchall()


def test_the_readme_links_to_pages_that_exist():
    links = re.findall(r"\]\((docs/[^)]+)\)", (ROOT / "README.md").read_text())
    assert links
    assert [link for link in links if not (ROOT / link).is_file()] == []


def test_every_command_of_the_readme_is_one(monkeypatch):
    import typer

    from flows.cli import app

    commands = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    used = set(
        re.findall(r"^(?:PYTHONPATH=\. )?rollmill (\w+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    )
    assert used
    assert used <= set(commands)


async def test_the_page_of_environments_has_one_with_tools_that_runs(tmp_path, monkeypatch):
    code = blocks("python", "docs/environments.md")[0]
    (tmp_path / "prices.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)

    from prices import Prices

    world = Prices()
    [scenario] = world.scenarios("train", 1, 0)
    await world.reset(scenario)
    call = ToolCall("a", "price", '{"fruit": "pear"}')
    step = await world.step(Message("assistant", None, tool_calls=(call,)))
    assert [message.content for message in step.messages] == ["4"]
    assert (await world.step(Message("assistant", "7 cents"))).reward == 1.0


@pytest.mark.parametrize("example", blocks("yaml", "docs/rewards.md"))
def test_every_reward_of_the_page_is_one_that_can_be_made(example, monkeypatch):
    from tasks.rewards.scorers import make_scorer
    from tasks.settings import RewardSettings

    monkeypatch.setenv("OPENAI_API_KEY", "none")
    assert make_scorer(RewardSettings.model_validate(yaml.safe_load(example)["reward"])).name
