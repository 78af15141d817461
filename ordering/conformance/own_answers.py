"""Answers to the conformance kit by our own implementation: each operation calls the code that jobs run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ordering.conformance.kit import Json
from ordering.errors import ProtocolError
from ordering.model.step import Batch, Model, Reason
from ordering.policies import Action, Generation, Policies, Shape
from ordering.protocol.foreign import foreign_reason
from ordering.protocol.keys import key_bytes
from ordering.protocol.partitioner import murmur2_column, output_partitions
from ordering.protocol.punctuation import Cause, Cti, Roster, Spread
from ordering.protocol.reader import Log, PartitionReader
from ordering.protocol.resume import last_promises
from ordering.protocol.wire import (
    CTI_HEADER_BYTES,
    PARTITION_SHIFT,
    decode_cti,
    decode_event_headers,
    decode_source_cti,
    encode_cti,
    encode_event_headers,
    encode_source_cti,
)
from ordering.testing import Record, batch_of
from ordering.ticks import NEVER

# Records in a batch of the model: any number must give the same.
_BATCH_RECORDS = 5


def answer(operation: str, given: Json) -> Json:
    """Answer one question of the kit; see :class:`ordering.conformance.kit.Implementation`."""
    if operation not in _OPERATIONS:
        return {"unsupported": True}
    try:
        answered: Json = _OPERATIONS[operation](given)
    except ProtocolError:
        return {"refused": True}
    return answered


def _partition(given: Json) -> Json:
    key = bytes.fromhex(given["key"])
    partitions = [int(output_partitions([key], count)[0]) for count in given["partitions"]]
    return {"murmur2": int(murmur2_column([key])[0]), "partition": partitions}


_EVENT_COLUMNS = "seq", "system_us", "event_time_us", "arrival_us", "offset"


def _encode_event(given: Json) -> Json:
    seq, system_us, event_time_us, arrival_us, offset = (np.array([given[name]], dtype=np.int64) for name in _EVENT_COLUMNS)
    flags = np.array([given["flags"]], dtype=np.uint16)
    headers = encode_event_headers(seq, system_us, event_time_us, arrival_us, offset, flags, given["number"])
    return {"header": headers[0].hex()}


def _decode_event(given: Json) -> Json:
    row = decode_event_headers([bytes.fromhex(given["header"])])[0]
    return {name: int(row[name]) for name in ("number", "flags", *_EVENT_COLUMNS)}


def _encode_cti(given: Json) -> Json:
    header, value = encode_cti(_cti_of(given))
    return {"header": header.hex(), "value": value.hex()}


def _decode_cti(given: Json) -> Json:
    cti = decode_cti(bytes.fromhex(given["header"]), bytes.fromhex(given["value"]), 0)
    names = "number", "c", "n", "ahead", "next_offset", "arrival_us", "largest_us", "part", "parts"
    roster = cti.roster
    return {
        **{name: getattr(cti, name) for name in names},
        "roster_version": roster.version,
        "inputs": roster.inputs,
        "spread": roster.spread.value,
        "substreams": roster.substreams,
        "cause": cti.cause.value,
        "listed": [[key.hex(), w] for key, w in cti.listed],
    }


def _cti_of(fields: Json) -> Cti:
    roster = Roster(fields["roster_version"], fields["inputs"], Spread(fields["spread"]), fields["substreams"])
    listed = tuple((bytes.fromhex(key), w) for key, w in fields["listed"])
    names = "number", "c", "n", "ahead", "next_offset", "arrival_us", "largest_us", "part", "parts"
    return Cti(output_partition=0, roster=roster, cause=Cause(fields["cause"]), listed=listed, **{name: fields[name] for name in names})


def _encode_source_cti(given: Json) -> Json:
    header, value = encode_source_cti(given["c"])
    return {"header": header.hex(), "value": value.hex()}


def _read(given: Json) -> Json:
    partition, partitions = given["partition"], given["output_partitions"]
    log = _log_of(given["log"], partition)
    reader = PartitionReader(partition, partitions, given["start_us"])
    accepted = reader.accept(log)
    reply: Json = {
        "accepted": [
            [position, int(log.number[row]), int(log.seq[row])]
            for position, row in zip(accepted.position.tolist(), accepted.rows.tolist(), strict=True)
        ],
        "progress": [list(rise) for rise in accepted.progress],
        "frontier": [list(rise) for rise in accepted.frontier],
        "listed": [[offset, number, key.hex(), w] for offset, number, key, w in accepted.listed],
        "rosters": [[offset, roster.version] for offset, roster in accepted.rosters],
        "waiting": [list(waiting) for waiting in reader.blocked_channels()],
        "missing": reader.missing(),
    }
    if given["start_us"] is None:
        valid = last_promises(log, partition, partitions)
        reply["valid"] = [[number, cti.c, cti.n, cti.ahead] for number, cti in sorted(valid.items())]
    return reply


def _substreams(given: Json) -> Json:
    lines = [line for line in given["log"] if "key" in line]
    origins = (decode_event_headers([bytes.fromhex(line["header"]) for line in lines])["offset"] >> PARTITION_SHIFT).tolist()
    log = _log_of(given["log"], given["partition"])
    accepted = PartitionReader(given["partition"], given["output_partitions"]).accept(log)
    reached: dict[tuple[int, int, str], int] = {}
    moved = []
    for position, row in zip(accepted.position.tolist(), accepted.rows.tolist(), strict=True):
        substream = int(log.number[row]), origins[row], lines[row]["key"]
        system_us = int(log.system_us[row])
        if system_us > reached.get(substream, NEVER):
            reached[substream] = system_us
            moved.append([position, *substream, system_us])
    return {"moved": moved, "frontier": [list(rise) for rise in accepted.frontier]}


def _log_of(lines: list[Json], partition: int) -> Log:
    offset, headers, ctis = [], [], []
    for line in lines:
        if not _is_own(line):
            continue
        header = bytes.fromhex(line["header"])
        if len(header) == CTI_HEADER_BYTES:
            ctis.append((line["offset"], decode_cti(header, bytes.fromhex(line["value"]), partition)))
        else:
            offset.append(line["offset"])
            headers.append(header)
    table = decode_event_headers(headers)
    number, seq, system_us = (table[name].astype(np.int64) for name in ("number", "seq", "system_us"))
    return Log(np.array(offset, dtype=np.int64), number, seq, system_us, ctis)


def _is_own(line: Json) -> bool:
    header, value = (None if line.get(name) is None else bytes.fromhex(line[name]) for name in ("header", "value"))
    return not foreign_reason(header, value)


def _write(given: Json) -> Json:
    model = Model(
        _policies_of(given["policies"]),
        given["over"],
        given["output_partitions"],
        given["number"],
        inputs=given["number"] + 1,
        shape=Shape(given["shape"]),
        generation=Generation(delay_us=given["cti_delay_us"]),
        joined_us=NEVER if given["joined_us"] is None else given["joined_us"],
    )
    state = model.new_state()
    reply: Json = {"channels": {str(partition): [] for partition in range(given["output_partitions"])}, "dropped": [], "ctis": []}
    for batch in _batches(given):
        step = model.step(state, batch)
        left = step.released
        columns = left.seq, left.system_us, left.event_time_us, left.arrival_us, left.offset, left.flags
        for partition, header in zip(left.output_partition.tolist(), encode_event_headers(*columns, left.number), strict=True):
            reply["channels"][str(partition)].append(header.hex())
        reasons = [Reason(reason).name.lower() for reason in step.dropped.reason.tolist()]
        reply["dropped"] += [list(drop) for drop in zip(step.dropped.offset.tolist(), reasons, strict=True)]
        reply["ctis"] += [[cti.output_partition, cti.c, cti.n, cti.ahead] for cti in step.ctis]
    return reply


def _policies_of(fields: Json) -> Policies:
    values: dict[str, Any] = {name: Action(value) if name.endswith("_action") else value for name, value in fields.items()}
    return Policies(**values)


def _batches(given: Json) -> Iterator[Batch]:
    """Yield the log in batches of a few records; each journaled fact is in the batch that contains its position."""
    records = [_record_of(line) for line in given["log"]]
    cuts = [records[start : start + _BATCH_RECORDS] for start in range(0, len(records), _BATCH_RECORDS)] or [[]]
    facts = {name: [(position, us) for position, us in given[name]] for name in ("estimates", "imports")}
    ends = [record.offset + 1 for record in records[-1:]] + [position for marks in facts.values() for position, _ in marks]
    end_offset = max(ends, default=0)
    low = 0
    for cut_index, cut in enumerate(cuts):
        is_last = cut_index == len(cuts) - 1
        high = end_offset if is_last else cuts[cut_index + 1][0].offset
        within = {name: [fact for fact in marks if low <= fact[0] < high + is_last] for name, marks in facts.items()}
        yield batch_of(cut, over=given["over"], end_offset=high, finish=given["finish"] and is_last, **within)
        low = high


def _record_of(line: Json) -> Record:
    record = Record(line["offset"], line["arrival_us"], line["event_time_us"], bytes.fromhex(line["key"]))
    start_us = NEVER if line.get("edge") == "start" else line.get("start_us")
    return replace(record, raw_key=record.key, source_cti_us=line.get("source_cti_us"), end_us=line.get("end_us"), start_us=start_us)


_OPERATIONS: dict[str, Any] = {
    "partition": _partition,
    "key_bytes": lambda given: {"key": key_bytes(given["json"]).hex()},
    "encode_event": _encode_event,
    "decode_event": _decode_event,
    "encode_cti": _encode_cti,
    "decode_cti": _decode_cti,
    "encode_source_cti": _encode_source_cti,
    "decode_source_cti": lambda given: {"c": decode_source_cti(bytes.fromhex(given["header"]), bytes.fromhex(given["value"]))},
    "read": _read,
    "substreams": _substreams,
    "write": _write,
}
