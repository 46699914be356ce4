"""The report: whole, self-contained, and nothing that a model said runs in it."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import pytest
from typer.testing import CliRunner

from flows.cli import app
from flows.report import write_report
from storage.codec import trajectories_from, trajectories_table
from storage.errors import StoreError
from storage.records import Message
from storage.schemas import TRAJECTORIES
from tests.storage.builder import make_store

ATTACK = "<script>alert(1)</script><img src=x onerror=alert(2)>\x1b[31m"


class Page(HTMLParser):
    """What a browser would load or run, and what it would show."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.sources: list[str] = []
        self.alternatives: list[str | None] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        found = dict(attrs)
        self.sources += [found[name] for name in ("src", "href") if name in found]
        if tag == "img":
            self.alternatives.append(found.get("alt"))

    def handle_data(self, data):
        self.text += data


def test_report_holds_what_it_shows_and_runs_nothing(tmp_path):
    store = make_store(tmp_path / "store")
    where = {"run": "demo", "step": 1, "split": "train"}
    stored = trajectories_from(store.read(TRAJECTORIES, **where), **where)
    attacked = [replace(t, messages=(*t.messages, Message("user", ATTACK))) for t in stored]
    store.publish_table(TRAJECTORIES, trajectories_table(attacked), **where)

    out = tmp_path / "report.html"
    result = CliRunner().invoke(app, ["report", "demo", "--store", str(store.root), "--out", str(out)])
    assert result.exit_code == 0, result.output
    html = out.read_text(encoding="utf-8")
    page = Page(html)
    assert "script" not in page.tags
    assert page.sources
    assert all(source.startswith("data:image/png;base64,") for source in page.sources)
    assert all(page.alternatives)
    assert "<script>alert(1)</script>" in page.text  # as text
    assert "\x1b" not in html
    for heading in ("Run demo", "Curves", "Reward by step and split", "Lineage", "Configuration"):
        assert heading in page.text


def test_report_of_an_unknown_run_is_refused(tmp_path):
    with pytest.raises(StoreError, match="no run 'nobody'"):
        write_report(make_store(tmp_path / "store"), "nobody", tmp_path / "x.html")
