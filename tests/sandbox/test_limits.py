"""The limits of a cell: the defaults of the config, or what the config says."""

import pytest

from nacre.config.code_mode import LIMITS, CodeModeConfig
from nacre.errors import ConfigError
from nacre.sandbox.results import Limits


def test_limits_without_a_config_are_those_of_the_default_config() -> None:
    assert Limits() == Limits.from_config(CodeModeConfig())


def test_limits_take_each_number_from_its_own_field_of_the_config() -> None:
    config = CodeModeConfig(
        timeout_ms=101,
        memory_limit_bytes=1048577,
        max_output_bytes=1025,
        max_snapshot_bytes=1026,
        max_pending_tool_calls=105,
    )
    assert Limits.from_config(config) == Limits(
        timeout_ms=101,
        memory_limit_bytes=1048577,
        max_output_bytes=1025,
        max_snapshot_bytes=1026,
        max_pending_tool_calls=105,
    )


@pytest.mark.parametrize("name", Limits.__dataclass_fields__)
def test_numbers_out_of_range_are_clamped_in_python_as_in_the_config(name: str) -> None:
    limit = LIMITS[name]
    assert getattr(Limits(**{name: limit.least - 1}), name) == limit.least
    assert getattr(Limits(**{name: limit.most + 1}), name) == limit.most


@pytest.mark.parametrize("value", ["soon", 1.5, None, True, float("nan")])
def test_a_limit_of_the_wrong_type_is_refused_by_name(value: object) -> None:
    with pytest.raises(ConfigError, match=r"`timeout_ms` is .*from 100 to 60000"):
        Limits(timeout_ms=value)  # pyright: ignore[reportArgumentType]
