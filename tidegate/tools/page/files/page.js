// The pages. Each is one function; what it draws comes from /api and /events.
import { ask, fillTable, main, make, makeChoice, page, repeat, showValue, span } from "./common.js";
import { showPipeline } from "./pipeline.js";
import { showTime } from "./time.js";
async function showWhy() {
  const names = await ask("names"), choices = make("div", null, "choices"), place = make("div");
  main.append(make("h1", "Why"), choices, place);
  if (!names || !names.outputs.length) return;
  const [label, name] = makeChoice("output", "name", names.outputs);
  choices.append(label, repeat(2, async () => {
    const found = await ask("why", { name });
    if (!found) return;
    const list = make("ul");
    for (const words of found.in_words) list.append(make("li", words));
    place.replaceChildren(make("p", "complete before " + (found.complete || "nothing yet") + "; next results due: " + (found.due || "none")),
      found.in_words.length ? list : make("p", "Nothing holds them."));
  }));
}
async function showMessages() {
  const names = await ask("names"), choices = make("div", null, "choices"), place = make("div");
  main.append(make("h1", "Messages"), choices, place);
  if (!names || !names.topics.length) return;
  const [topicLabel, topic] = makeChoice("topic", "topic", names.topics), [keyLabel, key] = makeChoice("key", "key");
  const [whereLabel, where] = makeChoice("condition, as speed > 50", "where");
  const [ctisLabel, ctis] = makeChoice("CTIs", "ctis", ["yes", "no"]);
  choices.append(topicLabel, keyLabel, whereLabel, ctisLabel, repeat(2, async () => {
    const found = await ask("messages", { topic, key, where, ctis });
    if (!found) return;
    const remark = (found.repetitions ? found.repetitions + " repetitions are left out. " : "") +
      (found.is_cut ? "Only the newest records of each partition were searched." : "");
    place.replaceChildren(make("p", remark), fillTable(["kind", "record"],
      found.records.map((record) => [record.kind, make("td", record.line, "line")])));
  }));
}
async function showEvent() {
  const names = await ask("names"), choices = make("div", null, "choices"), place = make("div");
  main.append(make("h1", "Event"), choices, place);
  if (!names) return;
  const [nameLabel, name] = makeChoice("input or output", "name", [...names.inputs, ...names.outputs]);
  const [placeLabel, at] = makeChoice("topic-partition@offset", "place"), [keyLabel, key] = makeChoice("or key", "key");
  const [whereLabel, where] = makeChoice("or condition, as speed > 50", "where"), [timeLabel, time] = makeChoice("of an output: time", "at");
  choices.append(nameLabel, placeLabel, keyLabel, whereLabel, timeLabel);
  if (!at && !key && !where && !time) {
    place.append(make("p", "Name a record: of an input, its place in the raw topic, a key or a condition; of an output, its place or key and time."));
    return;
  }
  place.append(make("p", "Looking for it ..."));
  const found = await ask("event", { name, place: at, key, where, at: time });
  place.replaceChildren();
  if (!found) return;
  if (!found.found.length) place.append(make("p", "There is no such record."));
  for (const each of found.found) {
    const part = make("section"), origin = each.origin || (each.topic !== undefined ? each.topic + "-" + each.partition + "@" + each.offset : each.place);
    part.append(make("h2", each.forward !== undefined ? "Where " + origin + " went" : origin || ""), showValue(each));
    place.append(part);
  }
}
async function showTune() {
  const names = await ask("names"), choices = make("div", null, "choices"), place = make("div");
  main.append(make("h1", "Tune"), choices, place);
  if (!names || !names.inputs.length) return;
  const [nameLabel, name] = makeChoice("input", "name", names.inputs), [touchLabel, touch] = makeChoice("at most touched, %", "touch");
  const [earlyLabel, early] = makeChoice("early", "early"), [lateLabel, late] = makeChoice("late", "late");
  const [reorderLabel, reorder] = makeChoice("reorder", "reorder");
  choices.append(nameLabel, earlyLabel, lateLabel, reorderLabel, touchLabel);
  place.append(make("p", "Computing over the recorded events ..."));
  const found = await ask("tune", { name, early, late, reorder, touch });
  place.replaceChildren();
  if (!found) return;
  const count = (number) => Number(number).toLocaleString("en"), share = (part) => (part * 100).toFixed(part < 0.01 ? 3 : 1) + " %";
  const row = (title, each) => [title, each.early, each.late, each.reorder, count(each.moved), count(each.dropped), share(each.touched_share),
    span(each.watermark_delay_s.p50), span(each.watermark_delay_s.p99), count(each.held_max), count(each.held_bytes)];
  const heads = ["policies", "early", "late", "reorder", "moved", "dropped", "touched", "delay p50", "p99", "held", "bytes held"];
  place.append(make("p", count(found.records) + " records arrived from " + found.arrivals[0] + " to " + found.arrivals[1] + "."),
    fillTable(heads, [row("these", found.now), ...(found.proposed ? [row("proposed", found.proposed)] : [])]));
  if (found.curve.length) {
    place.append(make("h2", "Delay against events touched"), fillTable(["late", "reorder", "events touched", "share", "delay p50", "p99"],
      found.curve.map((each) => [each.late, each.reorder, count(each.touched), share(each.touched_share), span(each.watermark_delay_s.p50),
        span(each.watermark_delay_s.p99)])));
  }
  const changes = Object.entries(found.changes || {});
  if (changes.length) {
    const lines = changes.flatMap(([setting, each]) => ["-" + setting + ' = "' + each.old + '"', "+" + setting + ' = "' + each.new + '"']);
    place.append(make("h2", "The difference to tidegate.toml"), make("pre", ["[inputs." + name + "]", ...lines].join("\n")));
  }
}
async function showHistory() {
  const place = make("div");
  main.append(make("h1", "History"), make("p", "What each job has said of its newest run, the newest first."), repeat(5, async () => {
    const found = await ask("history");
    if (found) place.replaceChildren(fillTable(["at", "job", "what", "more"], found.history.map((each) => [each.at, each.job, each.what, each.more])));
  }), place);
}
for (const item of document.querySelectorAll("nav a")) {
  if (item.getAttribute("href") === "/" + page) item.setAttribute("aria-current", "page");
}
({ pipeline: showPipeline, time: showTime, why: showWhy, event: showEvent, messages: showMessages, tune: showTune, history: showHistory })[page]();
