"""What is added to the prompt of a turn: by hooks, and by files that describe the agent."""

from __future__ import annotations

import codecs
import logging
import os
import re
from dataclasses import dataclass
from functools import cached_property
from html import escape
from typing import TYPE_CHECKING, Final

import anyio.to_thread

from nacre.hooks import AddToPrompt, BeforePromptBuild
from nacre.json_types import replace_surrogates
from nacre.tools import FileProblem, Workspace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from nacre.agent.turn_context import TurnContext
    from nacre.config import AgentConfig

logger = logging.getLogger(__name__)

AGENTS_FILE: Final = "AGENTS.md"
PROFILE_FILES: Final = ("SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md")
MEMORY_FILE: Final = "MEMORY.md"
BOOTSTRAP_FILE: Final = "BOOTSTRAP.md"
_NAMES: Final = (AGENTS_FILE, *PROFILE_FILES, MEMORY_FILE, BOOTSTRAP_FILE)

_SKILLS_FOLDER: Final = "skills"
_SKILL_FILE: Final = "SKILL.md"
_MAX_SKILLS: Final = 150
_MAX_SKILL_FOLDERS: Final = 1_000
_MAX_HEADER_BYTES: Final = 16_384
_MAX_NAME_CHARACTERS: Final = 64
_MAX_DESCRIPTION_CHARACTERS: Final = 1_024
_MAX_BYTES_PER_CHARACTER: Final = 4
_HEADER = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*$", re.DOTALL | re.MULTILINE)
_HEADER_LINE = re.compile(r"^(name|description)[ \t]*:[ \t]*(.+?)[ \t]*$", re.MULTILINE)
_SKILLS_NOTE: Final = (
    "These skills are available. When a task matches the description of one, read its file first "
    "and follow it."
)
_FILES_NOTE: Final = (
    "These files of the workspace are read at the start of each turn. They describe you, the "
    "person you work for, and how to work here."
)


async def collect_additions(turn: TurnContext) -> AddToPrompt:
    """Ask the `before_prompt_build` hooks what to add to the prompt of the turn."""
    hooks = turn.service.hooks
    if not hooks.has_hooks("before_prompt_build"):
        return AddToPrompt()
    message = turn.request.user_message
    found: list[AddToPrompt] = []
    with turn.stop.cancelling():
        event = BeforePromptBuild(
            context=turn.identity,
            model=turn.models[0],
            prompt="" if message is None else message.text,
            message_count=len(turn.transcript.history),
        )
        found.append(await hooks.before_prompt_build(event))
    turn.stop.raise_if_aborted()
    return found[0]


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceFile:
    """The text of one file, perhaps truncated with a note."""

    name: str
    text: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """A skill: `skills/<folder>/SKILL.md`."""

    name: str
    description: str
    path: str
    """Relative to the workspace."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceFiles:
    """The files that exist and have text, in a fixed order."""

    files: tuple[WorkspaceFile, ...] = ()
    skills: tuple[Skill, ...] = ()

    def select(self, *names: str) -> list[WorkspaceFile]:
        """The files with these names, in the order of the names."""
        by_name = {file.name: file for file in self.files}
        return [by_name[name] for name in names if name in by_name]


NO_FILES: Final = WorkspaceFiles()


async def read_workspace_files(agent: AgentConfig) -> WorkspaceFiles:
    """Read the files of the agent's workspace in a thread."""
    if not agent.workspace_files.is_enabled:
        return NO_FILES
    return await anyio.to_thread.run_sync(read_workspace, agent, abandon_on_cancel=True)


def read_workspace(agent: AgentConfig) -> WorkspaceFiles:
    """Read the files of the agent's workspace; blocks.

    A file that cannot be read, is not UTF-8 or leads out of the workspace is left out, with a
    warning in the log.
    """
    return _Reader(agent).read() if agent.workspace_files.is_enabled else NO_FILES


class _Reader:
    """Reads all files of one workspace; blocks."""

    def __init__(self, agent: AgentConfig) -> None:
        self._root = agent.workspace
        self._max_characters = agent.workspace_files.max_file_characters
        self._left = agent.workspace_files.max_total_characters

    @cached_property
    def _workspace(self) -> Workspace:
        return Workspace(self._root)

    def read(self) -> WorkspaceFiles:
        try:
            # The workspace is created when a tool needs it, not here.
            present = set(os.listdir(self._root))
        except OSError:
            return NO_FILES
        files = [self._read_file(name) for name in _NAMES if name in present]
        return WorkspaceFiles(
            files=tuple(file for file in files if file is not None),
            skills=tuple(self._find_skills()) if _SKILLS_FOLDER in present else (),
        )

    def _read_file(self, name: str) -> WorkspaceFile | None:
        try:
            text, is_whole = self._read_text(
                name, max_bytes=self._max_characters * _MAX_BYTES_PER_CHARACTER
            )
        except FileProblem as problem:
            logger.warning("%s of the workspace is left out: %s", name, problem)
            return None
        text = text.strip()
        if not text:
            return None
        count = min(len(text), self._max_characters, self._left)
        self._left -= count
        if count < len(text) or not is_whole:
            text = f"{text[:count]}\n[cut after {count} characters; read {name}]"
        return WorkspaceFile(name=name, text=text)

    def _read_text(self, path: str, *, max_bytes: int) -> tuple[str, bool]:
        """The start of a file, and whether that is all of it. Raises FileProblem."""
        with (
            self._workspace.locate(path) as target,
            os.fdopen(target.open_file(), "rb") as file,
        ):
            content = file.read(max_bytes + 1)
        is_whole = len(content) <= max_bytes
        decoder = codecs.getincrementaldecoder("utf-8-sig")()
        try:
            # The last character may be incomplete in the start of a file.
            return decoder.decode(content[:max_bytes], final=is_whole), is_whole
        except UnicodeDecodeError:
            raise FileProblem(f"{path} is not UTF-8; save it as UTF-8") from None

    def _find_skills(self) -> list[Skill]:
        try:
            with self._workspace.locate(_SKILLS_FOLDER) as target:
                folder = target.open_folder()
                try:
                    names = sorted(os.listdir(folder))[:_MAX_SKILL_FOLDERS]
                finally:
                    os.close(folder)
        except (FileProblem, OSError) as problem:
            logger.warning("the skills of the workspace are left out: %s", problem)
            return []
        skills: list[Skill] = []
        for name in names:
            if len(skills) == _MAX_SKILLS:
                logger.warning("only the first %d skills of the workspace are shown", _MAX_SKILLS)
                break
            skill = self._read_skill(name)
            if skill is not None:
                skills.append(skill)
        return skills

    def _read_skill(self, folder: str) -> Skill | None:
        path = f"{_SKILLS_FOLDER}/{folder}/{_SKILL_FILE}"
        if not os.path.lexists(self._root / _SKILLS_FOLDER / folder / _SKILL_FILE):
            return None
        try:
            text, _ = self._read_text(path, max_bytes=_MAX_HEADER_BYTES)
        except FileProblem as problem:
            logger.warning("a skill of the workspace is left out: %s", problem)
            return None
        header = _HEADER.match(text.replace("\r\n", "\n"))
        members = dict(_HEADER_LINE.findall(header[1])) if header else {}
        description = _one_line(members.get("description", ""), _MAX_DESCRIPTION_CHARACTERS)
        if not description:
            logger.warning(
                "the skill %s is left out: it needs a header with `name` and `description`", path
            )
            return None
        name = _one_line(members.get("name", ""), _MAX_NAME_CHARACTERS)
        return Skill(name=name or folder, description=description, path=path)


def _one_line(text: str, most: int) -> str:
    for quote in ('"', "'"):
        if len(text) > 1 and text.startswith(quote) and text.endswith(quote):
            text = text[1:-1]
    return " ".join(text.split())[:most]


def format_files(files: WorkspaceFiles, *, has_tools: bool) -> str:
    """Format all files for the instructions of the built-in harness; empty if there are none.

    The order is AGENTS.md, SOUL.md, IDENTITY.md, USER.md, TOOLS.md, skills, MEMORY.md and
    BOOTSTRAP.md. Without tools, the model cannot read a skill, so that none are listed.
    """
    parts = [
        *map(format_file, files.select(AGENTS_FILE, *PROFILE_FILES)),
        *([format_skills(files.skills)] if files.skills and has_tools else []),
        *map(format_file, files.select(MEMORY_FILE, BOOTSTRAP_FILE)),
    ]
    return "\n\n".join([_FILES_NOTE, *parts]) if parts else ""


def format_file(file: WorkspaceFile) -> str:
    return format_block("workspace_file", file.text, name=file.name)


def format_skills(skills: Sequence[Skill]) -> str:
    """Format a catalogue of skills: the name, path and description of each."""
    lines = [f"- {skill.name} ({skill.path}): {skill.description}" for skill in skills]
    return format_block("skills", "\n".join([_SKILLS_NOTE, *lines]))


def format_block(tag: str, text: str, **attributes: str) -> str:
    """Delimit a text for a model. The text cannot end the block."""
    shown = "".join(f' {name}="{escape(value)}"' for name, value in attributes.items())
    inner = re.sub(rf"<(/?\s*{re.escape(tag)})", r"&lt;\1", replace_surrogates(text), flags=re.I)
    return f"<{tag}{shown}>\n{inner}\n</{tag}>"
