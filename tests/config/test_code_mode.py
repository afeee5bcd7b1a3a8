"""The `tools.codeMode` contract, as the seed's table has it."""

import dataclasses
import math
import subprocess
import sys
from typing import Any

import pytest

from nacre.config.code_mode import FIELDS, LIMITS, CodeModeConfig, code_mode_config_from
from nacre.errors import ConfigError


def test_the_library_does_not_import_pydantic_for_settings() -> None:
    program = (
        "import sys, nacre; nacre.CodeMode(config={'timeoutMs': 500});"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


NUMBERS = [
    # key, default, least, most; written again here, because the contract is what is tested.
    ("timeoutMs", 10_000, 100, 60_000),
    ("memoryLimitBytes", 67_108_864, 1_048_576, 1_073_741_824),
    ("maxOutputBytes", 65_536, 1_024, 10_485_760),
    ("maxSnapshotBytes", 10_485_760, 1_024, 268_435_456),
    ("maxPendingToolCalls", 16, 1, 128),
    ("snapshotTtlSeconds", 900, 1, 86_400),
    ("searchDefaultLimit", 8, 1, 50),
    ("maxSearchLimit", 50, 1, 50),
    ("nameIndexBytes", 1_800, 0, 65_536),
]

DEFAULTS = CodeModeConfig(
    enabled=False,
    runtime="quickjs-wasi",
    mode="only",
    languages=("javascript", "typescript"),
    timeout_ms=10_000,
    memory_limit_bytes=67_108_864,
    max_output_bytes=65_536,
    max_snapshot_bytes=10_485_760,
    max_pending_tool_calls=16,
    snapshot_ttl_seconds=900,
    search_default_limit=8,
    max_search_limit=50,
    name_index_bytes=1_800,
)


def number_read_from(key: str, value: object) -> object:
    return getattr(code_mode_config_from({key: value}), FIELDS[key])


def refusal_of(value: object) -> str:
    with pytest.raises(ConfigError) as refusal:
        code_mode_config_from(value)
    return str(refusal.value)


@pytest.mark.parametrize("value", [None, False, {}, {"enabled": False}])
def test_code_mode_stays_off_with_all_defaults(value: object) -> None:
    assert code_mode_config_from(value) == DEFAULTS


@pytest.mark.parametrize("value", [True, {"enabled": True}])
def test_the_shorthand_true_enables_code_mode_as_the_object_does(value: object) -> None:
    assert code_mode_config_from(value) == dataclasses.replace(DEFAULTS, enabled=True)


def test_other_fields_alone_do_not_enable_code_mode() -> None:
    assert code_mode_config_from({"timeoutMs": 500}) == dataclasses.replace(
        DEFAULTS, timeout_ms=500
    )


def test_every_key_sets_its_own_field() -> None:
    config = code_mode_config_from(
        {
            "enabled": True,
            "runtime": "quickjs-wasi",
            "mode": "only",
            "languages": ["typescript"],
            "timeoutMs": 101,
            "memoryLimitBytes": 2_000_000,
            "maxOutputBytes": 1_025,
            "maxSnapshotBytes": 1_026,
            "maxPendingToolCalls": 3,
            "snapshotTtlSeconds": 4,
            "searchDefaultLimit": 5,
            "maxSearchLimit": 6,
        }
    )
    assert config == CodeModeConfig(
        enabled=True,
        languages=("typescript",),
        timeout_ms=101,
        memory_limit_bytes=2_000_000,
        max_output_bytes=1_025,
        max_snapshot_bytes=1_026,
        max_pending_tool_calls=3,
        snapshot_ttl_seconds=4,
        search_default_limit=5,
        max_search_limit=6,
    )


def test_the_table_of_limits_is_the_contracts_table() -> None:
    table = [(limit.key, limit.default, limit.least, limit.most) for limit in LIMITS.values()]
    assert table == NUMBERS


def test_every_field_of_the_config_has_a_key() -> None:
    assert list(FIELDS.values()) == [field.name for field in dataclasses.fields(CodeModeConfig)]


@pytest.mark.parametrize(("key", "default", "least", "most"), NUMBERS)
def test_a_number_out_of_range_is_clamped_at_both_ends(
    key: str, default: int, least: int, most: int
) -> None:
    given = (least - 1, -(10**30), least, default, most, most + 1, 1e300)
    read = [number_read_from(key, value) for value in given]
    assert read == [least, least, least, default, most, most, most]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"maxSearchLimit": 5}, (5, 5)),
        ({"searchDefaultLimit": 20, "maxSearchLimit": 10}, (10, 10)),
        ({"searchDefaultLimit": 3, "maxSearchLimit": 10}, (3, 10)),
        ({"searchDefaultLimit": 99, "maxSearchLimit": 99}, (50, 50)),
    ],
)
def test_the_default_search_limit_never_exceeds_the_greatest(
    settings: object, expected: tuple[int, int]
) -> None:
    config = code_mode_config_from(settings)
    assert (config.search_default_limit, config.max_search_limit) == expected


def test_an_integral_float_is_the_number_it_stands_for() -> None:
    read = number_read_from("timeoutMs", 500.0)
    assert (read, type(read)) == (500, int)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (500.5, "500.5"),
        ("500", '"500"'),
        (True, "true"),
        (None, "null"),
        ([500], "[500]"),
        (math.nan, "NaN"),
        (math.inf, "Infinity"),
        ({1}, "of type set"),
        ("x" * 1000, '"' + "x" * 59 + "…"),
    ],
)
@pytest.mark.parametrize(("key", "default", "least", "most"), NUMBERS)
def test_what_is_not_a_whole_number_is_refused_with_path_value_and_range(
    key: str, default: int, least: int, most: int, value: object, shown: str
) -> None:
    assert refusal_of({key: value}) == (
        f"`tools.codeMode.{key}` is {shown}; allowed: whole numbers from {least} to {most}"
    )


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("on", "`tools.codeMode` is a text; allowed: true, false and an object"),
        (1, "`tools.codeMode` is a number; allowed: true, false and an object"),
        ([], "`tools.codeMode` is a list; allowed: true, false and an object"),
        ({"enabled": "yes"}, '`tools.codeMode.enabled` is "yes"; allowed: true and false'),
        ({"enabled": 1}, "`tools.codeMode.enabled` is 1; allowed: true and false"),
        ({"enabled": None}, "`tools.codeMode.enabled` is null; allowed: true and false"),
        ({"runtime": "node"}, '`tools.codeMode.runtime` is "node"; allowed: only "quickjs-wasi"'),
        ({"mode": ["only"]}, '`tools.codeMode.mode` is ["only"]; allowed: only "only"'),
        (
            {"languages": []},
            '`tools.codeMode.languages` is []; allowed: a list of "javascript", "typescript"'
            " or both",
        ),
        (
            {"languages": "javascript"},
            '`tools.codeMode.languages` is "javascript"; allowed: a list of "javascript",'
            ' "typescript" or both',
        ),
        (
            {"languages": ["javascript", "python"]},
            '`tools.codeMode.languages[1]` is "python"; allowed: "javascript" and "typescript"',
        ),
        (
            {"languages": [["javascript"]]},
            '`tools.codeMode.languages[0]` is ["javascript"]; allowed: "javascript" and'
            ' "typescript"',
        ),
    ],
)
def test_a_wrong_type_or_value_is_refused_with_path_value_and_what_is_allowed(
    value: object, message: str
) -> None:
    assert refusal_of(value) == message


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("timeoutMS", "did you mean `timeoutMs`?"),
        ("timeout_ms", "did you mean `timeoutMs`?"),
        ("MAXOUTPUTBYTE", "did you mean `maxOutputBytes`?"),
        ("language", "did you mean `languages`?"),
        ("zzz", f"known: {', '.join(FIELDS)}"),
    ],
)
def test_an_unknown_key_is_refused_and_the_nearest_known_one_named(key: str, hint: str) -> None:
    assert refusal_of({"enabled": True, key: 1}) == (
        f'`tools.codeMode` has the unknown key "{key}"; {hint}'
    )


def test_a_key_that_is_not_text_is_unknown() -> None:
    assert refusal_of({1: True}).startswith("`tools.codeMode` has the unknown key 1; known: ")


def test_languages_given_twice_collapse_and_keep_their_order() -> None:
    config = code_mode_config_from({"languages": ["typescript", "javascript", "typescript"]})
    assert config.languages == ("typescript", "javascript")


def test_errors_name_the_path_that_the_caller_gave() -> None:
    with pytest.raises(ConfigError) as refusal:
        code_mode_config_from({"mode": "also"}, path="agents.main.tools.codeMode")
    assert refusal.value.path == "agents.main.tools.codeMode.mode"


def test_a_config_made_by_hand_is_clamped_as_a_read_one_is() -> None:
    config = CodeModeConfig(timeout_ms=1, max_search_limit=5, name_index_bytes=10**9)
    assert (config.timeout_ms, config.name_index_bytes) == (100, 65_536)
    assert (config.search_default_limit, config.max_search_limit) == (5, 5)
    assert dataclasses.replace(config, max_search_limit=500).max_search_limit == 50


def test_a_config_made_by_hand_may_have_its_languages_in_a_list() -> None:
    languages: Any = ["typescript", "typescript"]
    assert CodeModeConfig(languages=languages).languages == ("typescript",)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"enabled": "yes"}, '`enabled` is "yes"; allowed: true and false'),
        ({"runtime": "node"}, '`runtime` is "node"; allowed: only "quickjs-wasi"'),
        ({"mode": None}, '`mode` is null; allowed: only "only"'),
        ({"languages": ()}, "`languages` is []; allowed: a list of"),
        ({"languages": ("python",)}, '`languages[0]` is "python"; allowed: '),
        ({"name_index_bytes": "x"}, '`name_index_bytes` is "x"; allowed: whole numbers from 0'),
        ({"search_default_limit": None}, "`search_default_limit` is null; allowed: whole numbers"),
        ({"timeout_ms": math.nan}, "`timeout_ms` is NaN; allowed: whole numbers from 100"),
    ],
)
def test_a_config_made_by_hand_is_refused_by_field(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        CodeModeConfig(**fields)
    assert str(refusal.value).startswith(message)
