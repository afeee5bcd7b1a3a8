"""Messages to the user, with files of the workspace and of nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nacre.config.sections import CoreToolsConfig, FsToolsConfig
from nacre.messages import MAX_MEDIA_BYTES
from nacre.tools.core.core_tools import CoreTools
from nacre.tools.core.message_tool import MessageProblem, message_tool
from nacre.tools.core.workspace import FileProblem, Workspace
from tests.tools.core.tool_calls import Calls

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nacre.run_context import RunContext
    from nacre.tools import Attachment


class Channel:
    """Keeps what was sent, and for whom."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.files: list[Attachment] = []

    async def send(
        self, text: str, context: RunContext, /, *, attachments: Sequence[Attachment] = ()
    ) -> None:
        self.sent.append((text, context.session_id))
        self.files.extend(attachments)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "out").mkdir(parents=True)
    (folder / "out" / "pearl.png").write_bytes(b"\x89PNG\r\n\x1a\npearl")
    (tmp_path / "secret.txt").write_text("secret", encoding="utf-8")
    return folder


async def test_a_message_goes_to_the_channel_of_the_session() -> None:
    channel = Channel()
    calls = Calls([message_tool(channel)])
    result = await calls.call("message", action="send", text="half way", session_id="session_7")
    assert (channel.sent, calls.updates) == ([("half way", "session_7")], [])
    assert result == {"sentTo": "the session"}


async def test_without_a_channel_whoever_follows_the_run_sees_it() -> None:
    calls = Calls([message_tool(None)])
    assert await calls.call("message", text="half way") == {"sentTo": "the readers of the run"}
    assert calls.updates == [{"message": "half way"}]


async def test_an_empty_message_is_not_sent() -> None:
    calls = Calls([message_tool(None)])
    with pytest.raises(MessageProblem, match="text is empty"):
        await calls.call("message", text=" \n")
    assert calls.updates == []


async def test_files_of_the_workspace_are_sent_once_each_and_need_no_text(workspace: Path) -> None:
    channel = Channel()
    calls = Calls([message_tool(channel, workspace=Workspace(workspace))])
    inside = str(workspace / "out" / "pearl.png")

    result = await calls.call("message", attachments=["out/pearl.png", "out/pearl.png", inside])

    assert [(file.name, file.path) for file in channel.files] == [("pearl.png", inside)] * 2
    assert channel.files[0].data == b"\x89PNG\r\n\x1a\npearl"
    assert result == {"sentTo": "the session", "attachments": ["pearl.png", "pearl.png"]}


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("../secret.txt", "outside of the workspace"),
        ("/etc/hostname", "outside of the workspace"),
        ("~/secret.txt", "home directory"),
        ("link", "outside of the workspace"),
        ("upwards/secret.txt", "outside of the workspace"),
        ("out", "is a folder, not a file"),
        ("missing.png", "does not exist"),
        ("empty.txt", "is empty"),
        ("large.bin", f"more than {MAX_MEDIA_BYTES} bytes"),
        ("a\0b", "must be a path in the workspace"),
    ],
)
async def test_other_files_are_refused_and_nothing_is_sent(
    workspace: Path, path: str, problem: str
) -> None:
    (workspace / "link").symlink_to(workspace.parent / "secret.txt")
    (workspace / "upwards").symlink_to("..")
    (workspace / "empty.txt").touch()
    with (workspace / "large.bin").open("wb") as file:
        file.truncate(MAX_MEDIA_BYTES + 1)
    channel = Channel()
    calls = Calls([message_tool(channel, workspace=Workspace(workspace))])

    with pytest.raises(FileProblem, match=problem):
        await calls.call("message", text="look", attachments=["out/pearl.png", path])

    assert (channel.sent, channel.files) == ([], [])


@pytest.mark.parametrize(
    ("fs", "takes_files"),
    [
        (FsToolsConfig(), True),
        (FsToolsConfig(is_enabled=False), False),
        # Reading needs an approval, which a message does not have.
        (FsToolsConfig(ask="always"), False),
    ],
)
def test_an_agent_that_may_not_read_files_cannot_send_them(
    tmp_path: Path, fs: FsToolsConfig, takes_files: bool
) -> None:
    core = CoreTools(CoreToolsConfig(fs=fs), workspace=tmp_path, messages=Channel())
    properties = core.tools[-1].parameters["properties"]
    assert isinstance(properties, dict)
    assert ("attachments" in properties) is takes_files
