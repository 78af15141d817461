"""
Reports all wrong settings at once: each key with its value, the allowed values and the nearest spelling.

Law: a report has every problem that was found, in the order of the file, and shows no secret.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from ordering.errors import SettingError
from tidegate.basics.secret_masking import scrub

_CHOICES_LISTED = 10  # the most allowed words that an advice lists
# The names of our settings in other systems.
_COUNTERPARTS = {
    "timestamp_by": "event_time event_time_field event_timestamp time time_field time_column timestamp timestamp_field timestamp_column ts",
    "over": "key key_by key_field partition_by group_by substream substreams",
    "late": "lateness allowed_lateness max_lateness late_arrival grace grace_period",
    "early": "early_arrival",
    "reorder": "out_of_order out_of_orderness max_out_of_orderness watermark watermark_delay delay slack",
    "output_partitions": "partitions num_partitions",
    "max_events_per_batch": "batch_size max_offsets_per_trigger max_poll_records max_records",
    "fields": "schema columns",
    "format": "value_format payload_format encoding deserializer serialization",
    "headers": "header include_headers",
    "topic": "name kafka_topic source_topic output_topic result_topic",
    "bootstrap": "bootstrap_servers servers brokers broker_list host hosts url",
    "client": "properties options config",
    "url": "host hosts address uri dsn connection connection_string",
    "checkpoint_dir": "checkpoint checkpoints checkpoint_location checkpoint_folder checkpoint_path state_dir",
    "shuffle_partitions": "parallelism cores tasks",
    "trigger": "trigger_interval batch_interval processing_time",
    "files": "folder path file directory",
    "primary_key": "key keys key_columns unique_key",
    "batch_rows": "batch_size max_batch_size",
    "mode": "insert_mode write_mode save_mode",
}
_STORE_WORDS = {"postgres": "postgresql pg", "redis": "valkey", "http": "webhook webhooks", "delta": "deltalake delta_lake"}


class SettingsReport(SettingError):
    """Several settings are wrong; ``problems`` holds one :class:`SettingError` for each, at least two."""

    default_code = "TG-SETTINGS"

    def __init__(self, problems: Sequence[SettingError]) -> None:
        self.problems = tuple(problems)
        items = [f"  {number}. {problem}".replace("\n", "\n   ") for number, problem in enumerate(self.problems, 1)]
        super().__init__("\n".join([f"{len(items)} settings are wrong; nothing was started", *items]))

    # Pickled by its fields: by default an exception is unpickled by its constructor with the text.
    def __reduce__(self) -> tuple[object, ...]:
        return SettingsReport, (self.problems,)


def raise_problems(problems: Iterable[SettingError]) -> None:
    """Raise the only problem, or a :class:`SettingsReport` of several; do nothing if there is none."""
    listed = list(problems)
    if len(listed) == 1:
        raise listed[0]
    if listed:
        raise SettingsReport(listed)


def nearest_word(word: str, allowed: Iterable[str]) -> str | None:
    """Return the allowed word spelled most like *word*, or None if none is near."""
    spelled = {choice.lower(): choice for choice in allowed}
    matches = difflib.get_close_matches(word.lower().replace("-", "_"), list(spelled), n=1, cutoff=0.55)
    return spelled[matches[0]] if matches else None


def choice_fix(word: str, allowed: Iterable[str]) -> str:
    """Return the advice for a misspelled *word*: the nearest spelling, if any, and all allowed words; of many only the nearest three."""
    choices = sorted(allowed)
    if len(choices) > _CHOICES_LISTED:
        first, second, third = difflib.get_close_matches(word.lower().replace("-", "_"), choices, n=3, cutoff=0)
        return f"did you mean {first}, {second} or {third}? docs/reference/settings.md lists all {len(choices)}"
    suggestion = nearest_word(word, choices)
    listed = f"allowed: {', '.join(choices)}" if choices else "nothing is allowed here"
    return f"did you mean {suggestion}? {listed}" if suggestion else listed


def unknown_setting(key: str, value: str, where: str, allowed: Iterable[str]) -> SettingError:
    """Return the error of an unknown setting; for a word of another system the fix is the setting of that meaning."""
    word, choices = key.rpartition(".")[2], list(allowed)
    spelled = word.lower().replace("-", "_")
    counterpart = next((setting for setting, words in _COUNTERPARTS.items() if setting in choices and spelled in words.split()), None)
    fix = f"write {counterpart}, which docs/reference/settings.md describes" if counterpart else choice_fix(word, choices)
    return SettingError(scrub(f"unknown setting {key} = {value}"), code="TG-SETTING-UNKNOWN", where=where, fix=fix)


def unknown_store(name: str, where: str, stores: Iterable[str]) -> SettingError:
    """Return the error of a table of an output that belongs to no store; *stores* are the kinds that come with Tidegate."""
    meant = next((store for store, words in _STORE_WORDS.items() if name.lower() in words.split()), None)
    fix = f"write {meant}" if meant else f"install the package that brings it; {choice_fix(name, stores)}"
    what = f"there is no setting and no store {name} of an output"
    return SettingError(what, code="TG-SETTING-UNKNOWN", where=where, fix=fix)


def wrong_value(key: str, value: str, where: str, fix: str, example: str = "") -> SettingError:
    """Return the error of a value that is not allowed; *fix* names the allowed ones."""
    return SettingError(scrub(f"{key} = {value} is not allowed"), code="TG-SETTING-VALUE", where=where, fix=fix, example=example)


def exposed_secret(key: str, where: str, schemes: Collection[str]) -> SettingError:
    """
    Return the error of a secret that others could read: in a file that is copied around, or on the command line. *schemes* are the ways
    (``env``, ``file``) in which the setting takes it.
    """
    what = f"{key} is a secret, or may hold one, and is written out"
    if "file" in schemes:
        fix = "put it into a file that only this user can read, or into the environment, and name that here"
        example = '"file:/run/secrets/tidegate" or "env:TIDEGATE_SECRET"'
    else:
        fix, example = "put it into the environment, and name that here", '"env:TIDEGATE_SECRET"'
    return SettingError(what, code="TG-SETTING-SECRET", where=where, fix=fix, example=example)


def exposed_broker_password(key: str, where: str) -> SettingError:
    """Return the error of a password that is written into the address of a broker, which takes none."""
    fix = "write the address alone; the user and the password are properties of the client, and the password is named"
    example = 'kafka.client = { "sasl.mechanism" = "PLAIN", "sasl.username" = "me", "sasl.password" = "env:KAFKA_PASSWORD" }'
    what = f"{key} holds a password, which is written out and which no broker takes there"
    return SettingError(what, code="TG-SETTING-SECRET", where=where, fix=fix, example=example)


def unset_secret(key: str, reference: str, where: str, what: str, fix: str) -> SettingError:
    """Return the error of a secret that is needed, and whose file or variable is not there."""
    example = f"export {reference.partition(':')[2]}=..." if reference.startswith("env:") else ""
    return SettingError(f"{key} is needed, and {what}", code="TG-SETTING-UNSET", where=where, fix=fix, example=example)


def conflicting_settings(what: str, where: str, fix: str) -> SettingError:
    """Return the error of settings that contradict each other."""
    return SettingError(what, code="TG-SETTING-CONFLICT", where=where, fix=fix)


def wrong_name(key: str, where: str, fix: str) -> SettingError:
    """Return the error of a table whose name cannot be used."""
    return SettingError(f"{key} has a name that queries cannot use", code="TG-SETTING-NAME", where=where, fix=fix)
