"""States of buckets that were saved as files are read, and go on as if nothing had happened."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.saved_buckets import Saved, run_to_end

from ordering.errors import ProtocolError
from query.buckets.bucket import BUCKET_STATE_VERSION

FILES = sorted((Path(__file__).parent / "states").glob("v*.json"))


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_saved_bucket_goes_on(file: Path) -> None:
    """Level 2: a bucket restored from a file says to the rest of the log what the one that was saved would have said."""
    saved = Saved.from_json(json.loads(file.read_text()))
    bucket = saved.plan.bucket()
    bucket.restore(saved.head, saved.chunks)
    assert run_to_end(bucket, saved.rest) == (saved.results, saved.spans)


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_restored_bucket_is_saved_by_the_present_version(file: Path) -> None:
    """Level 2: read, saved anew and read again, it still goes on as it must."""
    saved = Saved.from_json(json.loads(file.read_text()))
    bucket, again = saved.plan.bucket(), saved.plan.bucket()
    bucket.restore(saved.head, saved.chunks)
    changes = bucket.save()
    head = changes.head
    again.restore(head, {number: octets for number, octets in {**saved.chunks, **changes.put}.items() if number not in changes.delete})
    assert run_to_end(again, saved.rest) == (saved.results, saved.spans)


def test_there_are_files_of_this_version() -> None:
    """A change of the format comes with a new version and new files."""
    assert {file.stem.partition(".")[0] for file in FILES} == {f"v{BUCKET_STATE_VERSION}"}


@pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])
def test_a_state_of_a_newer_version_is_refused(file: Path) -> None:
    """Set back to an older version, a program does not misread the state: it says which one can read it."""
    saved = Saved.from_json(json.loads(file.read_text()))
    newer = json.dumps({**json.loads(saved.head), "version": BUCKET_STATE_VERSION + 1}).encode()
    with pytest.raises(
        ProtocolError, match=f"has version {BUCKET_STATE_VERSION + 1}, this program reads version {BUCKET_STATE_VERSION}"
    ) as refusal:
        saved.plan.bucket().restore(newer, saved.chunks)
    assert refusal.value.fix == "run the version that saved it"
