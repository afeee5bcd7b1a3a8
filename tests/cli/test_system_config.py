"""The configuration as commands that run agents read it, and those that only look."""

from pathlib import Path

import pytest

from nacre.cli.output import UsageError
from nacre.cli.system_config import read_agent_config, read_system_config


def written(folder: Path, text: str) -> str:
    file = folder / "nacre.json5"
    file.write_text(text, encoding="utf-8")
    return str(file)


def refusal_of(named: str) -> str:
    with pytest.raises(UsageError) as refused:
        read_agent_config(named)
    return str(refused.value)


def test_every_problem_is_told_in_a_line_of_its_own(tmp_path: Path) -> None:
    named = written(tmp_path, "{gateway: {port: -1}, storage: {uri: ''}}")
    assert refusal_of(named).splitlines() == [
        f"{named} has 2 problems:",
        "  `gateway.port` is -1; allowed: whole numbers from 0 to 65535",
        '  `storage` has the unknown key "uri"; did you mean `url`?',
    ]


def test_a_single_problem_is_one_line(tmp_path: Path) -> None:
    named = written(tmp_path, "{gateway: {port: -1}}")
    assert refusal_of(named) == "`gateway.port` is -1; allowed: whole numbers from 0 to 65535"


def test_a_key_is_needed_only_where_agents_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    named = written(tmp_path, "{agents: {defaults: {model: 'openai/gpt-6'}}, gateway: {port: 7}}")
    assert "set OPENAI_API_KEY" in refusal_of(named)
    assert read_system_config(named)[1].gateway.port == 7
