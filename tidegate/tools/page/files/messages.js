// Messages: the newest records of a topic; dead letters with reasons, as files, and produced again where that is allowed.
import { ask, askActions, asked, button, count, fillTable, go, isHeld, link, main, make, makeChoice, refill, repeat } from "./common.js";

// Asks before a record is produced again.
function confirm(record, act) {
  const box = make("dialog"), no = button("Cancel", "produce nothing", () => box.close());
  const yes = button("Produce again", "append the record to its raw topic", async () => { box.close(); await act(); });
  box.append(make("h2", "Produce this record again?"), make("p", "The raw record " + record.origin + " is appended to its partition once more. It arrives now, and is judged as a new one."),
    make("pre", record.line));
  const buttons = make("div", null, "choices");
  buttons.append(yes, no);
  box.append(buttons);
  box.addEventListener("close", () => box.remove());
  main.append(box);
  box.showModal();
  no.focus();
}
function fillLetters(records, actions, told) {
  const rows = records.map((record) => {
    const where = make("td"), origin = record.origin || "", acts = make("td", null, "acts"), [topic] = origin.split(/-\d+@/);
    where.append(record.can_return ? link(origin, "/event", { name: record.input || "", place: origin }) : make("span", origin));
    const loads = link("bytes", "/download/record", { place: record.place });
    loads.setAttribute("download", "");
    acts.append(loads);
    if (actions.allowed && record.can_return) {
      acts.append(button("Produce again", "append the raw record of " + topic + " once more", () => confirm(record, async () => {
        const done = await askActions("produce-again", { place: record.place }, actions.key);
        if (done) told.textContent = "Produced again as " + done.record + ".";
      })));
    }
    return [record.reason, where, make("td", record.line, "line"), acts];
  });
  return fillTable(["reason", "from", "record", ""], rows);
}
export async function showMessages() {
  const names = await ask("names"), choices = make("div", null, "choices"), told = make("p", "", "told"), place = make("div");
  told.setAttribute("role", "status");
  main.append(make("h1", "Messages"), choices, told, place);
  if (!names || !names.topics.length) return;
  const actions = await (await fetch("/actions")).json();
  const [topicLabel, topic] = makeChoice("topic", "topic", names.topics), [keyLabel, key] = makeChoice("key", "key");
  const [whereLabel, where] = makeChoice("condition, as speed > 50", "where"), [reasonLabel, reason] = makeChoice("reason", "reason");
  const [ctisLabel, ctis] = makeChoice("CTIs", "ctis", ["yes", "no"]), stage = asked.get("stage") || "";
  const [repetitionsLabel, repetitions] = makeChoice("repetitions", "repetitions", ["marked", "left out"]);
  const [fromLabel, from] = makeChoice("from a time, or an age as 10m", "from");
  const [partitionLabel, partition] = makeChoice("partition", "partition");
  const parameters = { topic, partition, repetitions, key, where, from, ctis, reason, stage };
  const isOfLetters = names.letters.includes(topic);
  const loads = link("Load as a file", "/download/messages", parameters);
  loads.setAttribute("download", "");
  loads.className = "button";
  choices.append(topicLabel, partitionLabel, keyLabel, whereLabel, fromLabel, ...(isOfLetters ? [reasonLabel] : [ctisLabel, repetitionsLabel]));
  if (stage) choices.append(button("only of " + stage + " ✕", "show those of all stages", () => go({ stage: null })));
  choices.append(loads, repeat(2, async () => {
    const found = await ask("messages", parameters);
    if (!found || isHeld(place)) return;
    const remark = (found.repetitions ? found.repetitions + " repetitions, which every reader skips, are " + repetitions + ". " : "") +
      (found.is_cut ? "Only the newest records of each partition were searched." : "");
    const parts = [make("p", remark)], reasons = Object.entries(found.reasons);
    if (reasons.length) {
      const list = make("p", null, "reasons");
      for (const [each, number] of reasons) list.append(button(count(number) + " " + each, "only these", () => go({ reason: each })));
      parts.push(list);
    }
    const isLetters = found.records.some((record) => record.reason !== undefined);
    parts.push(isLetters ? fillLetters(found.records, actions, told)
      : fillTable(["kind", "record"], found.records.map((record) => [record.is_repetition ? "repetition" : record.kind, make("td", record.line, "line")])));
    if (!found.records.length) parts.push(make("p", "No such record."));
    refill(place, ...parts);
  }));
}
