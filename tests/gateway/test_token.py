"""The token of the gateway: made, kept, and checked."""

import stat
from pathlib import Path

import anyio.to_thread
import pytest

from nacre.config.gateway import GatewayConfig
from nacre.errors import ConfigError
from nacre.gateway.server import check_auth, load_token, token_file


async def test_a_generated_token_is_kept_where_only_its_owner_reads_it(tmp_path: Path) -> None:
    path = token_file({"XDG_DATA_HOME": str(tmp_path)})

    def made_twice() -> tuple[str, str, int]:
        return load_token(path), load_token(path), stat.S_IMODE(path.stat().st_mode)

    first, second, mode = await anyio.to_thread.run_sync(made_twice)
    assert len(first) > 30
    assert (first == second, mode) == (True, 0o600)


def test_a_token_that_others_could_have_written_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("0123456789abcdef0123", encoding="utf-8")
    path.chmod(0o644)
    assert load_token(path) != "0123456789abcdef0123"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_folder_that_cannot_hold_a_token_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(ConfigError, match="file/token"):
        load_token(tmp_path / "file" / "token")


@pytest.mark.parametrize("token", ["short", "with space 0123456789", "0123456789abcdefé"])
def test_a_token_that_is_none_is_refused_without_being_shown(token: str) -> None:
    with pytest.raises(ConfigError) as refused:
        check_auth(GatewayConfig(token=token), {})
    assert token not in str(refused.value)


def test_a_token_of_the_environment_is_blamed_by_its_variable() -> None:
    with pytest.raises(ConfigError, match="NACRE_GATEWAY_TOKEN"):
        check_auth(GatewayConfig(token="short"), {"NACRE_GATEWAY_TOKEN": "short"})
    with pytest.raises(ConfigError, match=r"gateway\.auth\.token"):
        check_auth(GatewayConfig(token="brief"), {"NACRE_GATEWAY_TOKEN": "short"})


def test_without_a_token_only_this_machine_may_be_served() -> None:
    with pytest.raises(ConfigError, match=r"0\.0\.0\.0"):
        check_auth(GatewayConfig(auth_mode="none", host="0.0.0.0"), {})
