"""
The command ``tidegate ui``: the pipeline as a page in a browser.

Law: what the page shows is what ``status``, ``watermarks --plot``, ``why`` and ``peek`` find, by the same functions. It changes nothing,
and is reached from this machine alone unless it has a token.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ordering.errors import SettingError
from tidegate.platform.observe.terminal import standard_output

if TYPE_CHECKING:
    from tidegate.platform.settings.load import Settings

PORT, TOKEN = 8600, "TIDEGATE_UI_TOKEN"
_LOCAL = ("127.0.0.1", "localhost", "::1")
_RECORDS_MAX = 500
_CONNECTIONS_MAX = 64


def ui(
    host: Annotated[str, typer.Option(help=f"The address to listen on; one that others reach needs {TOKEN}.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port to listen on.")] = PORT,
    name: Annotated[list[str] | None, typer.Option(help="A further name under which browsers ask this server.")] = None,
    certificate: Annotated[Path | None, typer.Option(help="TLS: the certificate and its chain, PEM.")] = None,
    key: Annotated[Path | None, typer.Option(help="TLS: the private key of the certificate, PEM.")] = None,
    config: Annotated[Path | None, typer.Option(help="Configuration file; default: tidegate.toml here.")] = None,
    assign: Annotated[list[str] | None, typer.Option("--set", help="Override a setting: redis.url=redis://host:6379/0")] = None,
) -> None:
    """Serve the pipeline as a page in a browser, until Ctrl-C."""
    from tidegate.platform.settings.load import load_assigned

    settings = load_assigned(config, assign)
    token = os.environ.get(TOKEN, "")
    check_binding(host, token)
    try:
        import uvicorn

        from tidegate.tools.page.access import LOOPBACK, Access
        from tidegate.tools.page.server import make_page
    except ImportError as error:
        what, fix = f"the page needs the package {error.name}", "install the extra ui"
        raise SettingError(what, code="TG-SETTING-UNKNOWN", where="tidegate ui", fix=fix, example="pip install 'tidegate[ui]'") from error
    shown = f"[{host}]" if ":" in host else host
    names = frozenset(each.lower() for each in (*LOOPBACK, shown, *(name or [])))
    folder = config.parent if config is not None else Path()
    app = make_page(make_answers(settings, folder), Access(names, token))
    scheme = "http" if certificate is None else "https"
    standard_output().line(f"the pipeline is shown at {scheme}://{shown}:{port}")
    uvicorn.run(
        app,
        host=host,
        port=port,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        access_log=False,
        log_level="warning",
        server_header=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=2,
    )


def check_binding(host: str, token: str) -> None:
    """Raise SettingError: others reach *host*, and there is no token."""
    if host not in _LOCAL and len(token) < 16:
        what = f"{host} is reached by others, and there is no token of at least 16 characters"
        fix = f"set the variable {TOKEN}, or listen on 127.0.0.1"
        raise SettingError(what, code="TG-SETTING-FLAG", where="--host", fix=fix, example=f"export {TOKEN}=$(openssl rand -hex 16)")


def make_answers(settings: Settings, folder: Path) -> Mapping[str, Any]:
    """Return what the page can ask, by name; *folder* is that of the configuration."""
    return {
        "pipeline": lambda _: find_pipeline(settings),
        "time": lambda asked: find_times(settings, asked.get("name", "")),
        "why": lambda asked: find_why(settings, folder, asked.get("name", "")),
        "messages": lambda asked: find_messages(settings, asked),
        "names": lambda _: list_names(settings),
    }


def list_names(settings: Settings) -> dict[str, Any]:
    """Return the inputs, the outputs and the topics of the pipeline."""
    topics = [
        name
        for table in settings.inputs.values()
        for name in (*table.topics, table.ordered_topic, table.dead_letter_topic, table.dropped_topic)
    ]
    topics += [table.topic or name for name, table in settings.outputs.items()]
    return {"inputs": list(settings.inputs), "outputs": list(settings.outputs), "topics": list(dict.fromkeys(filter(None, topics)))}


def find_pipeline(settings: Settings) -> dict[str, Any]:
    """Return the jobs as ``tidegate status --format json`` has them."""
    from tidegate.tools.commands.status import read_jobs

    return {"jobs": [job.as_dict() for job in read_jobs(settings, [], time.time_ns() // 1_000_000)]}


def find_times(settings: Settings, name: str) -> dict[str, Any]:
    """Return the newest events and watermarks of an input, as ``tidegate watermarks --plot`` draws them; times are microseconds."""
    from ordering.protocol.wire import Flag
    from tidegate.platform.kafka.admin import Admin
    from tidegate.tools.staircase.read import read_staircase

    table = settings.input(name)
    admin = Admin.connect(settings.kafka)
    topic = admin.require(table.ordered_topic, "start the stage that writes it")
    policies = table.policies()
    stairs = read_staircase(admin, settings.kafka.client_properties(), topic, policies, table.over is not None)
    what = [
        "early" if flags & Flag.EARLY else "late" if flags & Flag.LATE else "out of order" if flags & Flag.OUT_OF_ORDER else "in order"
        for flags in stairs.flags.tolist()
    ]
    columns = stairs.arrival_us.tolist(), stairs.event_us.tolist(), stairs.system_us.tolist(), what
    return {
        "topic": stairs.topic,
        "looked_at": stairs.events,
        "late_us": policies.late_us,
        "reorder_us": policies.reorder_us,
        "events": [list(event) for event in zip(*columns, strict=True)],
        "steps": {str(number): steps for number, steps in stairs.steps.items()},
    }


def find_why(settings: Settings, folder: Path, name: str) -> dict[str, Any]:
    """Return what the next results of an output wait for, as ``tidegate why --format json`` has it, and the same in words."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.platform.observe.progress_store import ProgressStore
    from tidegate.tools.commands.why import as_dict
    from tidegate.tools.why.gather import Gathering
    from tidegate.tools.why.holds import find_holds

    settings.output(name)
    now_us = time.time_ns() // 1_000
    with ProgressStore(settings.redis) as store:
        facts = Gathering(settings, Admin.connect(settings.kafka), store, folder).output_facts(name, now_us)
    holds = find_holds(facts, now_us)
    return as_dict(facts, holds) | {"in_words": [hold.in_words for hold in holds]}


def find_messages(settings: Settings, asked: Mapping[str, str]) -> dict[str, Any]:
    """Return the newest records of a topic of the pipeline, each as the line of ``tidegate peek``."""
    from tidegate.platform.kafka.admin import Admin
    from tidegate.records.payloads.formats import JSON, PayloadFormat
    from tidegate.tools.commands.peek import bind_where, find_input
    from tidegate.tools.peek.display import Display
    from tidegate.tools.peek.reading import TopicView, Wanted

    topic, limit = asked.get("topic", ""), asked.get("limit", "50")
    if topic not in list_names(settings)["topics"]:
        raise SettingError(f"{topic} is no topic of this pipeline", code="TG-SETTING-NAME", where="topic", fix="choose one of the list")
    if not (limit.isascii() and limit.isdigit() and 0 < int(limit[:9]) <= _RECORDS_MAX):
        raise SettingError(f"{limit} is no number of records", code="TG-SETTING-FLAG", where="limit", fix=f"1 to {_RECORDS_MAX}")
    table = find_input(settings, topic)
    condition = bind_where(asked["where"], table) if asked.get("where") else None
    admin = Admin.connect(settings.kafka)
    places = admin.require(topic, "start the stage that writes it").all_partitions
    payloads = JSON if table is None else PayloadFormat.of(table, settings.schema_registry)
    display = Display(payloads)
    wanted = Wanted(condition, asked["key"].encode() if asked.get("key") else None, payloads, asked.get("ctis") != "no")
    with TopicView(admin, settings.kafka.client_properties(), places, wanted) as view:
        records = [{"place": sight.place, "kind": sight.kind.value, "line": display.line(sight)} for sight in view.newest(int(limit))]
        return {"topic": topic, "records": records[::-1], "repetitions": view.repetitions, "is_cut": view.is_cut}
