"""A plugin for end-to-end tests: a large catalog, of which every tool says its number."""

from nacre.plugins.api import PluginApi, Tool, ToolCall


def register(api: PluginApi) -> None:
    for number in range(int(str(api.config["count"]))):
        api.add_tool(_numbered(number))


def _numbered(number: int) -> Tool:
    async def execute(input: dict[str, object], call: ToolCall) -> object:
        return {"number": number, "said": input["text"]}

    return Tool(
        name=f"fake_{number}",
        description=f"The fake tool number {number}: says a text, and which tool has said it.",
        parameters={
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "What it has to say."},
                "volume": {"type": "integer", "description": "How loud, from 0 to 10."},
            },
            "required": ["text"],
        },
        execute=execute,
    )
