"""Manifests: what has to be in one, and what is said of one that will not do."""

from pathlib import Path

import pytest

from nacre.errors import PluginError
from nacre.json_types import JsonObject
from nacre.plugins import MANIFEST_NAME, PluginManifest, read_manifest


def manifest(folder: Path, text: str) -> PluginManifest:
    (folder / MANIFEST_NAME).write_text(text, encoding="utf-8")
    return read_manifest(folder)


def test_an_id_is_enough(tmp_path: Path) -> None:
    assert manifest(tmp_path, '{"id": "weather"}') == PluginManifest(id="weather", name="weather")


def test_comments_are_allowed_as_in_the_configuration(tmp_path: Path) -> None:
    text = "{ // mine\n id: 'a', version: '2', entry: 'code.main:start', }"
    expected = PluginManifest(id="a", name="a", version="2", entry="code.main:start")
    assert manifest(tmp_path, text) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", ".id` is ''; allowed"),
        ('{"id": "Weather"}', "is 'Weather'; allowed"),
        ('{"id": "core"}', "is 'core'; allowed"),
        ('{"id": 7}', ".id` is a number; allowed: text"),
        ('{"id": "a", "entry": "plugin"}', "is 'plugin'; allowed: module:function"),
        ('{"id": "a", "entry": "../x:y"}', "is '../x:y'; allowed: module:function"),
        ('{"id": "a", "tools": []}', "has the unknown key 'tools'; known: id, name"),
        (
            '{"id": "a", "configSchema": {"type": "array"}}',
            "configSchema` does not describe an object",
        ),
        ('{"id": "a", "configSchema": {"properties": 3}}', "configSchema` is not a JSON Schema:"),
        (
            '{"id": "a", "configSchema": {"$ref": "http://127.0.0.1:9/schema"}}',
            "configSchema` is not a JSON Schema: Resource 'http://127.0.0.1:9/schema' is not",
        ),
        ('{"id": "a", "description": "\\u001b[2J"}', ".description` holds control characters"),
        ('{"id": "a", "version": "\\ud800"}', ".version` holds control characters or halves"),
        ("[]", "is a list; allowed: an object"),
        ("{", "is not JSON"),
    ],
)
def test_a_manifest_that_will_not_do_is_refused_with_the_reason(
    tmp_path: Path, text: str, problem: str
) -> None:
    with pytest.raises(PluginError) as refused:
        manifest(tmp_path, text)
    assert str(tmp_path / MANIFEST_NAME) in str(refused.value)
    assert problem in str(refused.value)


def test_a_folder_without_a_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"nacre\.plugin\.json cannot be read: No such file"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("place", ["code", "src/nacre_weather"])
def test_where_the_manifest_lies_deeper_that_is_said(tmp_path: Path, place: str) -> None:
    deeper = tmp_path / place
    deeper.mkdir(parents=True)
    (deeper / MANIFEST_NAME).touch()
    with pytest.raises(PluginError) as refused:
        read_manifest(tmp_path)
    assert str(refused.value).endswith(f"No such file or directory; there is one in {deeper}")


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({"unit": "k3lvin"}, '`X.unit` is not an allowed value; allowed: "c", "f"'),
        ({"unti": "k3lvin"}, '`X` has the unknown key "unti"; did you mean `unit`?'),
        ({"deep": {"ab": 1}}, '`X.deep` has the unknown key "ab"; known: wide'),
        ({"any": {"ab": 1}}, '`X.any` has the unknown key "ab"'),
        ({"deep": "k3lvin"}, "`X.deep` has the wrong type; allowed: object"),
        ({"list": [{"x": 1}]}, "`X.list[0].city` is missing"),
        ({"size": 1}, "`X.size` is invalid: its value is less than the minimum of 3"),
    ],
)
def test_settings_that_do_not_fit_are_told_of_as_ours_are(config: JsonObject, problem: str) -> None:
    schema: JsonObject = {
        "properties": {
            "unit": {"enum": ["c", "f"]},
            "deep": {
                "type": "object",
                "properties": {"wide": {}},
                "additionalProperties": False,
            },
            "any": {"patternProperties": {"^x": {}}, "additionalProperties": False},
            "list": {"items": {"required": ["city"]}},
            "size": {"minimum": 3},
        },
        "additionalProperties": False,
    }
    plugin = PluginManifest(id="a", name="a", config_schema=schema)
    (found,) = plugin.problems_in(config)
    assert str(found) == problem.replace("X", "plugins.entries.a.config")


def test_settings_have_to_fit_the_schema() -> None:
    plugin = PluginManifest(
        id="a", name="a", config_schema={"properties": {"unit": {"enum": ["c", "f"]}}}
    )
    plugin.check_config({"unit": "c"})
    with pytest.raises(PluginError, match=r"`plugins\.entries\.a\.config\.unit`") as refused:
        plugin.check_config({"unit": "kelvin"})
    assert "kelvin" not in str(refused.value)


def test_a_plugin_without_a_schema_takes_no_settings() -> None:
    with pytest.raises(PluginError, match="has settings, but a takes none"):
        PluginManifest(id="a", name="a").check_config({"unit": "c"})
