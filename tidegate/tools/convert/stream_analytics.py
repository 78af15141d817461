"""
A project of Azure Stream Analytics, as its extension for Visual Studio Code and its CI tool write it.

``asaproj.json`` (or ``*.asaproj``) names the script, ``JobConfig.json``, and the files of inputs, outputs and functions. Files may have a
byte order mark, paths may have backslashes, and keys are masked or absent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any
from xml.etree import ElementTree

from ordering.errors import QueryError, SettingError
from tidegate.basics.bounded_files import read_file_text
from tidegate.basics.visible_text import quote_toml
from tidegate.tools.convert.draft import Draft, Value, items_of, member, text_of, unique_name
from tidegate.tools.convert.event_hubs import connect_namespace
from tidegate.tools.convert.outputs import convert_output
from tidegate.tools.convert.scripts import NamesInScript, read_names, rename

_TYPES = ("any", "bigint", "float", "nvarchar(max)", "datetime", "bit", "record", "array")
_DAY_S = 86_400
_UNLIMITED_S = 21 * _DAY_S  # Stream Analytics takes no longer lateness than almost 21 days


@dataclass(frozen=True, slots=True)
class ProjectFile:
    """One file of the project, with the kind that the project gives it."""

    kind: str
    path: Path
    fields: Any

    @property
    def name(self) -> str:
        return text_of(self.fields, "Name", "InputAlias", "OutputAlias") or self.path.name.partition(".")[0]


def is_project(folder: Path) -> bool:
    """Return whether a folder has a project of Stream Analytics."""
    return any(True for pattern in ("asaproj.json", "*.asaproj", "*.asaql") for _ in folder.glob(pattern))


def convert_project(folder: Path) -> Draft:
    """Return the project made out of the one in *folder*. Raises SettingError: it has no script, or a file of it is no JSON."""
    script, parts = _read_project(folder)
    draft = Draft(read_source(script), f"{script.stem}.sql")
    names = read_names(draft.script, script.name)
    if isinstance(names, QueryError):
        draft.note(f"script {script.name}", "partly", f"{names.where}: {names.what}", names.fix or "correct it")
        names = NamesInScript()
    job: Any = next((part.fields for part in parts if part.kind == "jobconfig"), {})
    policies = _policies(draft, job)
    mocks = {part.name.lower(): part for part in parts if part.kind == "inputmock"}
    for part in parts:
        if part.kind == "input":
            _convert_input(draft, part, names, policies, mocks.get(part.name.lower()))
        elif part.kind == "output":
            convert_output(draft, part.name, part.fields)
        elif "function" in part.kind:
            _convert_function(draft, part)
    _add_unnamed_inputs(draft, names, policies, mocks)
    for name in names.outputs.values():
        if f"outputs.{draft.name_of(name)}" not in draft.tables:
            draft.table(f"outputs.{draft.name_of(name)}")["topic"] = draft.name_of(name)
            draft.note(f"output {name}", "converted", "the project has no file for it", "its results go to a topic of its name")
    if draft.renamed:
        draft.script = rename(draft.script, script.name, draft.renamed)
    into: dict[str, Value] = {"into": "output"} if names.has_unnamed_output and "outputs.output" in draft.tables else {}
    draft.table(f"queries.{draft.name_of(script.stem)}").update({"script": draft.script_name, **into})
    _convert_cases(draft, folder, names)
    return draft


def read_source(path: Path) -> str:
    """Return a text that may begin with a byte order mark. Raises SettingError: it cannot be read."""
    try:
        return read_file_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingError(
            f"the file cannot be read: {error}", code="TG-CONVERT-FILE", where=str(path), fix="give a text in UTF-8"
        ) from None


def read_json(path: Path) -> Any:
    """Return the value of a JSON file. Raises SettingError: it is none."""
    try:
        return json.loads(read_source(path))
    except (ValueError, RecursionError) as error:
        raise SettingError(f"the file is no JSON: {error}", code="TG-CONVERT-FILE", where=str(path), fix="correct it") from None


def find_file(root: Path, written: str) -> Path | None:
    """Return the file that a path of the project names, with slashes of either kind; None: it is not there."""
    plain = Path(*PureWindowsPath(written).parts) if written else Path()
    candidates = [root / plain, root / plain.name]
    return next((path for path in candidates if written and path.is_file()), None)


def _read_project(folder: Path) -> tuple[Path, list[ProjectFile]]:
    listed = list(_listed(folder))
    scripts = [path for path, kind in listed if kind == "script"] or sorted(folder.glob("*.asaql"))
    if not scripts:
        fix = "name the folder of asaproj.json, with its .asaql file, or of an eventstream.json"
        raise SettingError("there is no script in this project", code="TG-CONVERT-PROJECT", where=str(folder), fix=fix)
    parts = []
    for path, kind in listed or list(_found(folder)):
        if kind != "script" and path.suffix == ".json":
            fields = read_json(path)
            parts.append(ProjectFile((text_of(fields, "ScriptType") or kind).lower(), path, fields))
        elif path.suffix == ".js":
            parts.append(ProjectFile("jsfunction", path, {}))
    described = {part.name.lower() for part in parts if "function" in part.kind and part.path.suffix == ".json"}
    return scripts[0], [part for part in parts if part.path.suffix != ".js" or part.name.lower() not in described]


def _listed(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files that the project names, with their kinds."""
    entries: list[tuple[str, str]] = []
    if (project := folder / "asaproj.json").is_file():
        fields = read_json(project)
        entries = [(text_of(fields, "startFile"), "script")]
        entries += [(text_of(each, "filePath"), text_of(each, "subType")) for each in items_of(member(fields, "configurations"))]
    elif project_file := next(iter(sorted(folder.glob("*.asaproj"))), None):
        try:
            root = ElementTree.fromstring(read_source(project_file))
        except ElementTree.ParseError as error:
            what = f"the file is no XML: {error}"
            raise SettingError(what, code="TG-CONVERT-FILE", where=str(project_file), fix="correct it") from None
        for node in root.iter():
            kind = next((child.text or "" for child in node if child.tag.endswith("SubType")), "")
            kind = "script" if node.tag.endswith("}Script") or node.tag == "Script" else kind
            entries += [(node.get("Include", ""), kind)] if kind else []
    for written, kind in entries:
        if (path := find_file(folder, written)) is not None:
            yield path, kind


def _found(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield the files of a project that names none, by their folders."""
    for path in sorted(folder.glob("*.json")):
        if path.name.lower() == "jobconfig.json":
            yield path, "JobConfig"
    for place, kind in (("Inputs", "Input"), ("Outputs", "Output"), ("Functions", "Function")):
        for path in sorted((folder / place).glob("*.js*")):
            yield path, kind


def _policies(draft: Draft, job: Any) -> dict[str, Value]:
    """Return the time policies that all inputs of a job have."""
    late, reorder = member(job, "EventsLateArrivalMaxDelayInSeconds"), member(job, "EventsOutOfOrderMaxDelayInSeconds")
    late_s = int(late) if isinstance(late, int | float) else 5
    if late_s < 0:
        late_s = _UNLIMITED_S
        draft.note("late arrival without limit", "partly", "results that never are final cannot be given", 'late is "21d": shorten it')
    action = "drop" if text_of(job, "EventsOutOfOrderPolicy").lower() == "drop" else "adjust"
    if (level := text_of(job, "CompatibilityLevel")) and level != "1.2":
        draft.note(
            f"compatibility level {level}",
            "partly",
            "scripts have the behaviour of level 1.2",
            "docs/queries/coming-from-stream-analytics.md",
        )
    if (locale := text_of(job, "DataLocale")) and locale.lower() != "en-us":
        draft.note(f"locale {locale}", "none", "numbers and dates in texts are read as in en-US")
    if text_of(job, "OutputErrorPolicy").lower() == "drop":
        draft.note("error policy drop", "partly", "a row that fails is a dead letter", 'stores: on_error = "dead_letter"')
    reorder_s = int(reorder) if isinstance(reorder, int | float) else 0
    return {"late": f"{late_s}s", "reorder": f"{reorder_s}s", "late_action": action, "out_of_order_action": action}


def _convert_input(draft: Draft, part: ProjectFile, names: NamesInScript, policies: dict[str, Value], mock: ProjectFile | None) -> None:
    name, called = part.name, f"input {part.name}"
    if "reference" in text_of(part.fields, "Type").lower():
        _convert_reference(draft, name, part.fields, mock)
        return
    settings = draft.table(f"inputs.{draft.name_of(name)}")
    source = text_of(part.fields, "DataSourceType").lower()
    settings["topic"] = draft.name_of(name)
    if hub := member(part.fields, "EventHubProperties"):
        settings["topic"] = text_of(hub, "EventHubName") or draft.name_of(name)
        if namespace := text_of(hub, "ServiceBusNamespace"):
            connect_namespace(draft, namespace, called)
        draft.note(called, "converted", "an event hub is a topic at the Kafka endpoint of its namespace")
    elif hub := member(part.fields, "IoTHubProperties"):
        settings["topic"] = text_of(hub, "IotHubNamespace").lower() or draft.name_of(name)
        why = "an IoT hub has an endpoint of its own for Kafka, which the project does not name"
        fix = "set kafka.bootstrap, topic and the password to its Event Hub-compatible endpoint (docs/operate/event-hubs.md#iot-hub)"
        draft.note(called, "partly", why, fix)
    else:
        fix = f"write its records to topic {settings['topic']}: tidegate produce FILE {settings['topic']}"
        draft.note(called, "partly", f"{source or 'its source'} is no stream of Kafka", fix)
    _set_format(draft, called, part.fields, settings)
    _set_times(draft, name, names, policies, settings)


def _set_format(draft: Draft, called: str, fields: Any, settings: dict[str, Value]) -> None:
    serialization = member(fields, "Serialization")
    kind = (text_of(serialization, "Type") or text_of(fields, "Format")).lower()
    if kind == "json":
        # A message may be an array of events.
        settings["explode"] = "array"
    elif kind == "csv":
        settings["format"] = "csv"
        settings["csv_delimiter"] = text_of(serialization, "FieldDelimiter") or ","
        settings["csv_columns"] = ["column1"]
        draft.note(called, "partly", "records of CSV have no header here", "set csv_columns to the names of their values, in order")
    elif kind == "avro":
        draft.note(
            called, "partly", "Avro files in messages are read as JSON here", 'set format = "avro" and avro_schema, or "avro_registry"'
        )
    elif kind:
        draft.note(called, "partly", f"records of form {kind} are not read", "have them written as JSON")
    if text_of(fields, "CompressionType", "CompresssionType").lower() not in ("", "none"):
        draft.note(called, "partly", "compressed payloads are not read", "have the producer compress batches instead, as Kafka does")


def _set_times(draft: Draft, name: str, names: NamesInScript, policies: dict[str, Value], settings: dict[str, Value]) -> None:
    """Set when an input's events happened, and whose time is theirs, as the script says; policies mean something only then."""
    found: dict[str, Value] = {}
    for setting, by_name, clause in (("timestamp_by", names.times, "TIMESTAMP BY"), ("over", names.keys, "OVER")):
        texts = by_name.get(name.lower(), [])
        if texts:
            found[setting] = texts[0] if setting == "timestamp_by" or "," not in texts[0] else texts[0].split(",")
        if len(texts) > 1:
            why = f"the script gives it several clauses {clause}: {'; '.join(texts)}"
            draft.note(f"input {name}", "partly", why, f"make an input of another name for each {clause}")
    settings.update(found | (policies if "timestamp_by" in found else {}))


def _convert_reference(draft: Draft, name: str, fields: Any, mock: ProjectFile | None) -> None:
    settings, called, plain = draft.table(f"references.{draft.name_of(name)}"), f"reference data {name}", draft.name_of(name)
    blob = member(fields, "BlobReferenceProperties", "BlobStorageProperties")
    kind = (text_of(member(fields, "Serialization"), "Type") or text_of(fields, "Format")).lower()
    path = f"reference/{plain}.{'json' if kind == 'json' else 'csv'}"
    settings["path"] = path
    if kind in ("csv", "json"):
        settings["format"] = "ndjson" if kind == "json" else "csv"
    sample = find_file(mock.path.parent, text_of(mock.fields, "FilePath")) if mock is not None else None
    if sample is not None:
        draft.files[path] = read_source(sample)
    have = f"{path} is the local sample" if sample is not None else f"write it to {path}"
    if blob is None:
        source = text_of(fields, "DataSourceType") or "its source"
        draft.note(called, "partly", f"{source} is not read", f"{have}; a table of PostgreSQL: [references.NAME.postgres]")
        return
    account = next((text_of(each, "AccountName") for each in items_of(member(blob, "StorageAccounts"))), "")
    pattern = text_of(blob, "PathPattern", "PathPrefix").lstrip("/")
    url = f"abfs://{text_of(blob, 'Container')}@{account}.dfs.core.windows.net/{pattern}"
    draft.note(called, "partly", f"to read it where it is, with its versions: path = {url!r}", f"until then {have}")


def _add_unnamed_inputs(draft: Draft, names: NamesInScript, policies: dict[str, Value], mocks: dict[str, ProjectFile]) -> None:
    """Add the inputs that only the script, or a local sample, names."""
    for lower, name in names.inputs.items():
        plain = draft.name_of(name)
        if f"inputs.{plain.lower()}" in map(str.lower, draft.tables) or f"references.{plain.lower()}" in map(str.lower, draft.tables):
            continue
        mock = mocks.get(lower)
        if mock is not None and "reference" in text_of(mock.fields, "Type").lower():
            _convert_reference(draft, name, mock.fields, mock)
            continue
        settings = draft.table(f"inputs.{plain}")
        settings["topic"] = plain
        if mock is not None:
            _set_format(draft, f"input {name}", mock.fields, settings)
        _set_times(draft, name, names, policies, settings)
        why = "only a local sample of it is known" if mock else "the project has no file for it"
        draft.note(f"input {name}", "partly", why, f"its events are read from topic {plain}")


def _convert_function(draft: Draft, part: ProjectFile) -> None:
    called = f"function {part.name}"
    binding = member(member(member(part.fields, "properties"), "properties") or {}, "binding")
    code = member(member(binding or {}, "properties") or {}, "script")
    beside = part.path if part.path.suffix == ".js" else _script_beside(part)
    if code is None and beside is None:
        kind = text_of(part.fields, "ScriptType", "AssemblyName") or text_of(binding or {}, "type") or "another kind"
        draft.note(
            called, "none", f"it is of {kind}", "write it in JavaScript (docs/queries/javascript.md) or Python (docs/queries/extending.md)"
        )
        return
    draft.files[f"functions/{part.name}.js"] = code if isinstance(code, str) else read_source(beside or part.path)
    settings = draft.table(f"functions.{part.name}")
    settings["script"] = f"functions/{part.name}.js"
    described = member(member(part.fields, "properties") or {}, "properties") or part.fields
    takes = [_type(text_of(each, "DataType")) for each in items_of(member(described, "FunctionInputs", "inputs"))]
    gives = _type(text_of(described, "OutputType") or text_of(member(described, "output") or {}, "dataType"))
    is_aggregate = "aggregate" in text_of(part.fields, "Type").lower() or re.search(
        r"\bthis\.accumulate\b", draft.files[str(settings["script"])]
    )
    # An aggregate's last argument, the time, is not declared here.
    settings.update({"takes": takes} if takes and not is_aggregate else {})
    settings.update({"gives": gives} if gives != "any" else {})
    draft.note(called, "converted")


def _script_beside(part: ProjectFile) -> Path | None:
    written = text_of(part.fields, "FilePath", "Script", "ScriptPath")
    candidates = [find_file(part.path.parent, written), part.path.with_suffix(""), part.path.parent / f"{part.name}.js"]
    return next((path for path in candidates if path is not None and path.suffix == ".js" and path.is_file()), None)


def _type(written: str) -> str:
    lower = written.lower()
    return lower if lower in _TYPES else "any"


def _convert_cases(draft: Draft, folder: Path, names: NamesInScript) -> None:
    """Make a case of each test case of the CI tool."""
    for config in sorted(folder.rglob("testConfig.json")):
        for number, case in enumerate(items_of(member(read_json(config), "TestCases")), 1):
            title = text_of(case, "Name") or f"case {number}"
            taken = {Path(name).parent.name for name in draft.files if name.startswith("cases/")}
            _convert_case(draft, config.parent, case, title, f"cases/{unique_name(title, taken)}")


def _convert_case(draft: Draft, root: Path, case: Any, title: str, place: str) -> None:
    settings = {"description": title, "script": f"../../{draft.script_name}", "config": "../../tidegate.toml"}
    files = {f"{place}/case.toml": "".join(f"{key} = {quote_toml(value)}\n" for key, value in settings.items())}
    missing = []
    for given in items_of(member(case, "Inputs")):
        source = find_file(root, text_of(given, "FilePath"))
        role = "reference" if "reference" in text_of(given, "Type").lower() else "input"
        if source is None:
            missing.append(text_of(given, "FilePath"))
            continue
        ending = "csv" if text_of(given, "Format").lower() == "csv" or source.suffix.lower() == ".csv" else "json"
        files[f"{place}/{role}.{draft.name_of(text_of(given, 'InputAlias'))}.{ending}"] = read_source(source)
    for output in items_of(member(case, "ExpectedOutputs")):
        name = draft.name_of(text_of(output, "OutputAlias"))
        if member(output, "Required") is False:
            draft.note(
                f"test case {title}",
                "partly",
                f"output {name} was not compared",
                "its expected results are what the query gives: check them",
            )
            continue
        source = find_file(root, text_of(output, "FilePath"))
        if source is None:
            missing.append(text_of(output, "FilePath"))
            continue
        files[f"{place}/expected.{name}.ndjson"] = as_lines(read_source(source))
    if missing:
        draft.note(
            f"test case {title}", "none", f"there is no file {', '.join(missing)}", "put it beside testConfig.json and convert again"
        )
        return
    draft.files |= files
    draft.note(f"test case {title}", "converted", f"it is {place}; results are compared in their order, byte for byte")


_TIME = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d+))?Z")


def as_lines(text: str) -> str:
    """Return the objects of a file, in an array, one after another or a line each, as results are written here."""
    decoder, values, rest = json.JSONDecoder(), list[Any](), text.strip()
    place, end = 0, len(rest)
    while place < end:
        value, place = decoder.raw_decode(rest, place)
        while place < end and rest[place].isspace():
            place += 1
        values += value if isinstance(value, list) else [value]
    return "".join(json.dumps(_as_written_here(value), separators=(",", ":"), ensure_ascii=False) + "\n" for value in values)


def _as_written_here(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _as_written_here(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_as_written_here(inner) for inner in value]
    if isinstance(value, str) and (match := _TIME.fullmatch(value)):
        # Seven digits of a second there, as many as are needed here.
        fraction = (match[2] or "").rstrip("0")
        return f"{match[1]}{'.' if fraction else ''}{fraction}Z"
    return value
