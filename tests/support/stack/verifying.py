"""``tidegate verify`` in the folder of a workspace, by the process of the test: what it told."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import typer
from support.stack.jobs import Workspace
from typer.testing import CliRunner

from tidegate.platform.observe.console import report_errors
from tidegate.tools.verify.command import verify

_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
_app.command()(report_errors(verify))


def run_verify(space: Workspace, target: str, *flags: str, exit_code: int = 0) -> dict[str, Any]:
    """Run the command; return what it told, or the ``error``."""
    addresses = {
        "TIDEGATE_KAFKA__BOOTSTRAP": space.stack.bootstrap,
        "TIDEGATE_REDIS__URL": space.stack.redis_url,
        "TIDEGATE_SPARK__CHECKPOINT_DIR": str(space.folder / ".tidegate/checkpoints"),
    }
    before = Path.cwd()
    os.chdir(space.folder)
    try:
        result = CliRunner().invoke(_app, [target, "--format", "json", *flags], env=addresses)
    finally:
        os.chdir(before)
    assert result.exit_code == exit_code, (result.output, result.stderr, result.exception)
    return dict(json.loads(result.stdout)) if result.stdout else {"error": result.stderr}


def stage(told: dict[str, Any], name: str) -> dict[str, Any]:
    """Return what is told of one stage."""
    return next(each for each in told["stages"] if each["name"] == name)
