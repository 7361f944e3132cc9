"""Settings: where they come from, what is refused, and that all are documented."""

from __future__ import annotations

from pathlib import Path

import pytest
from spu_assigner.stream.kafka.config.settings import Settings, SettingsError


def write(folder: Path, text: str) -> Path:
    path = folder / "assigner.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_flags_come_before_the_environment_before_the_file(tmp_path: Path) -> None:
    """The nearer to the hand, the stronger; a flag that was not given is None."""
    file = write(tmp_path, 'query_name = "file"\ntopic_prefix = "file."\nshards = 3\n')
    environ = {
        "SPU_ASSIGNER_CONFIG": str(file),
        "SPU_ASSIGNER_QUERY_NAME": "environ",
        "SPU_ASSIGNER_TOPIC_PREFIX": "environ.",
    }
    settings = Settings.load(flags={"query_name": "flag", "shards": None}, environ=environ)
    assert (settings.query_name, settings.topic_prefix, settings.shards) == ("flag", "environ.", 3)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("KAFKA_BOOTSTRAP_SERVERS", "localhost"),
        ("SPU_ASSIGNER_TOPIC_PREFIX", "no spaces"),
        ("SPU_ASSIGNER_CHECKPOINT", ""),
        ("SPU_ASSIGNER_QUERY_NAME", ""),
        ("SPU_ASSIGNER_SHARDS", "0"),
        ("SPU_ASSIGNER_SHARDS", "many"),
        ("SPU_ASSIGNER_DEFAULT_POLICY", "best"),
        ("SPU_ASSIGNER_WIRE", "json"),
        ("SPU_ASSIGNER_TOPIC_EVENTS_PER_BATCH", "-1"),
        ("SPU_ASSIGNER_DRIVER_MEMORY", "2"),
        ("SPU_ASSIGNER_UI_PORT", "65536"),
        ("SPU_ASSIGNER_LOG_LEVEL", "LOUD"),
    ],
)
def test_a_wrong_value_is_reported_by_its_variable(variable: str, value: str) -> None:
    """The one line that is printed must lead to the place to fix."""
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ={variable: value})
    assert caught.value.source == variable
    assert str(caught.value).startswith(f"{variable} is {value!r}; expected ")
    assert caught.value.exit_status == 2


def test_a_wrong_flag_is_reported_by_its_flag() -> None:
    """The user has typed it so."""
    with pytest.raises(SettingsError, match=r"^--ui-port is 'x'; expected 0 \(none\) to 65535$"):
        Settings.load(flags={"ui_port": "x"}, environ={})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("shard = 3\n", "a name in .* is 'shard'"),
        ("shards = true\n", "shards in .* is True"),
        ("shards = 0\n", "shards in .* is '0'"),
        ("shards: 3\n", r"the settings file \S+ is no TOML \(Expected '=' .*; expected TOML"),
        (None, "the settings file .* is unusable: it cannot be read: No such file"),
    ],
)
def test_a_wrong_file_is_reported_by_its_entry(
    tmp_path: Path, text: str | None, message: str
) -> None:
    """Otherwise a setting would silently have its default, and another job than meant start."""
    file = tmp_path / "none.toml" if text is None else write(tmp_path, text)
    with pytest.raises(SettingsError, match=message):
        Settings.load(environ={}, file=file)
