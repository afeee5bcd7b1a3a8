"""References in settings: each kind, what is missing, and that no value shows in an error."""

from pathlib import Path

import pytest

from nacre.config.references import Expander
from nacre.errors import ConfigError

ENVIRONMENT = {
    "TOKEN": "hunter2",
    "EMPTY": "",
    "REFERENCE": "${TOKEN}",
    "HOME": "/home/ada",
    "ProgramFiles(x86)": "C:\\x86",
    "INPUT_GITHUB_TOKEN": "asked",
}
EXPANDER = Expander(environment=ENVIRONMENT, workspace=Path("/projects/shop"))


def expand(text: str) -> str:
    return EXPANDER.expand(text, path="mcp.servers.x.url")


def refusal_of(text: str) -> str:
    with pytest.raises(ConfigError) as refusal:
        expand(text)
    message = str(refusal.value)
    assert message.startswith("`mcp.servers.x.url` ")
    return message.removeprefix("`mcp.servers.x.url` ")


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("plain $TOKEN {TOKEN} $", "plain $TOKEN {TOKEN} $"),
        ("Bearer ${TOKEN}, ${TOKEN}", "Bearer hunter2, hunter2"),
        ("${env:TOKEN}", "hunter2"),
        ("${env:ProgramFiles(x86)}", "C:\\x86"),
        ("<${EMPTY}>", "<>"),
        ("${TOKEN:-other}", "hunter2"),
        ("${MISSING:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("<${MISSING:-}>", "<>"),
        ("${env:MISSING:-a:-b}", "a:-b"),
        ("${MISSING:-two\nlines}", "two\nlines"),
        ("${userHome}${/}x", "/home/ada/x"),
        ("${workspaceFolder} ${workspaceFolderBasename}", "/projects/shop shop"),
        ("${input:github-token}", "asked"),
    ],
)
def test_a_reference_is_replaced_by_what_it_names(text: str, expanded: str) -> None:
    assert expand(text) == expanded


@pytest.mark.parametrize("text", ["${name%.*}", "${name:0:3}", "${}", "${1}", "${name:=x}", "${x"])
def test_what_is_a_shell_s_own_stays_as_it_is(text: str) -> None:
    assert expand(text) == text


def test_a_doubled_dollar_stands_for_a_plain_one() -> None:
    assert expand("$${TOKEN} ${TOKEN}") == "${TOKEN} hunter2"


def test_a_value_is_not_looked_into_for_references() -> None:
    assert expand("${REFERENCE}") == "${TOKEN}"


@pytest.mark.parametrize("text", ["${MISSING}", "${env:MISSING}"])
def test_a_missing_variable_is_named(text: str) -> None:
    assert refusal_of(f"${{TOKEN}} {text}") == (
        "uses the environment variable MISSING, which is not set; set it, "
        "or write ${MISSING:-default}"
    )


def test_what_vs_code_would_ask_for_can_be_given_by_a_variable() -> None:
    assert refusal_of("${input:api key}") == (
        "uses ${input:api key}, which only VS Code can ask for; "
        "set the environment variable INPUT_API_KEY instead"
    )


def test_an_unknown_kind_of_reference_is_refused() -> None:
    assert refusal_of("${evn:TOKEN}").startswith("uses ${evn:…}, which Nacre does not know; known:")


def test_a_reference_inside_another_is_refused() -> None:
    assert refusal_of("${MISSING:-${TOKEN}}") == (
        "has a reference inside another one; write them side by side"
    )


def test_a_file_s_text_is_taken_without_its_last_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from file\r\n", encoding="utf-8")
    assert expand(f"<${{file:{tmp_path}/token}}>") == "<from file>"


def test_a_file_may_be_named_from_the_user_s_folder(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("mine", encoding="utf-8")
    expander = Expander(environment={"HOME": str(tmp_path)}, workspace=tmp_path)
    assert expander.expand("${file:~/token}", path="p") == "mine"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"\xffhunter2", "is not UTF-8 text"),
        (b"hunter2" * 10_000, "has more than 65536 bytes"),
    ],
)
def test_a_file_that_is_no_secret_is_refused_without_its_text(
    tmp_path: Path, content: bytes | None, problem: str
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    assert refusal_of(f"${{file:{file}}}") == f"uses the file {file}, which {problem}"


@pytest.mark.parametrize("name", ["token", "", "../token"])
def test_a_file_needs_an_absolute_path(name: str) -> None:
    assert "has to be absolute" in refusal_of(f"${{file:{name}}}")


def test_a_name_that_no_file_can_have_is_refused() -> None:
    assert "that is not a file name" in refusal_of("${file:/a\0b}")


def test_the_environment_does_not_show_in_the_repr() -> None:
    assert "hunter2" not in repr(EXPANDER)
