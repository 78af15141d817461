"""CREATE TABLE: the types that a script declares are added to the configured inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidegate.language.expressions.binding.input_schema import InputSchema
from tidegate.language.expressions.kinds import DECLARABLE
from tidegate.language.expressions.syntax.errors import Source, suggest
from tidegate.language.expressions.syntax.statements import Declaration


def apply_declarations(source: Source, declarations: Sequence[Declaration], inputs: Sequence[InputSchema]) -> list[InputSchema]:
    """Return *inputs* with the types that the script declares. Raises QueryError: a declaration does not fit the inputs."""
    schemas = {schema.name.lower(): schema for schema in inputs}
    declared: set[str] = set()
    for declaration in declarations:
        name = declaration.name.lower()
        if name not in schemas:
            known = [schema.name for schema in inputs]
            fix = suggest(declaration.name, known, f"inputs are {', '.join(known)}" if known else "configure it under [inputs]")
            raise source.error("INPUT", declaration.offset, f"there is no input {declaration.name}", fix=fix)
        if name in declared:
            raise source.error("NAME", declaration.offset, f"{declaration.name} is declared twice", fix="declare all its fields at once")
        declared.add(name)
        schemas[name] = _apply(declaration, source, schemas[name])
    return list(schemas.values())


def _apply(declaration: Declaration, source: Source, schema: InputSchema) -> InputSchema:
    fields = dict(schema.fields)
    for path, kind, offset in declaration.fields:
        names = tuple(path.split("."))
        configured_kind = schema.declared_kind(names)
        if configured_kind is not None and configured_kind is not DECLARABLE[kind]:
            message = f"{schema.name}.{path} is configured as {configured_kind.asa_name}, not as {kind}"
            raise source.error("TYPE", offset, message, fix=f"write {configured_kind.asa_name}, or CAST it where it is used")
        if not schema.may_have(names):
            fix = suggest(names[0], schema.fields, f"its fields are {', '.join(schema.fields)}")
            raise source.error("FIELD", offset, f"{schema.name} has no field {path}", fix=fix)
        fields = {name: declared for name, declared in fields.items() if name.lower() != path.lower()} | {path: kind}
    return replace(schema, fields=fields)
