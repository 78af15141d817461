// The pages. Each is one function; what it draws comes from /api and /events.
import { ask, count, figure, fillTable, link, main, make, makeChoice, page, showValue, span } from "./common.js";
import { showHistory } from "./history.js";
import { showMessages } from "./messages.js";
import { showPipeline } from "./pipeline.js";
import { showTime } from "./time.js";
import { showWhy } from "./why.js";
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
    part.append(make("h2", each.forward !== undefined ? "Where " + origin + " went" : origin || ""));
    const { raw, ...decoded } = each;
    if (raw) {
      const both = make("div", null, "beside"), bytes = make("div");
      for (const name of ["key", "value"]) {
        bytes.append(make("h3", raw[name] ? name + ", " + count(raw[name].bytes) + " bytes" : "no " + name));
        if (raw[name] && raw[name].lines.length) bytes.append(make("pre", raw[name].lines.join("\n") + (raw[name].is_cut ? "\n…" : "")));
      }
      const loads = link("all bytes of the value", "/download/record", { place: raw.place });
      loads.setAttribute("download", "");
      bytes.append(loads);
      const told = make("div");
      told.append(make("h3", "decoded"), showValue(decoded));
      both.append(told, bytes);
      part.append(both);
    } else part.append(showValue(decoded));
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
  const share = (part) => (part * 100).toFixed(part < 0.01 ? 3 : 1) + " %";
  const row = (title, kind, each) => {
    const cell = (path, text) => {
      const value = path.reduce((part, name) => part[name], each), made = make("td", null, "number");
      made.append(figure(["tune", name, kind, ...path], value, text ? text(value) : value));
      return made;
    };
    return [make("th", title), cell(["early"]), cell(["late"]), cell(["reorder"]), cell(["moved"], count), cell(["dropped"], count), cell(["touched_share"], share),
      cell(["watermark_delay_s", "p50"], span), cell(["watermark_delay_s", "p99"], span), cell(["held_max"], count), cell(["held_bytes"], count)];
  };
  const heads = ["policies", "early", "late", "reorder", "moved", "dropped", "touched", "delay p50", "p99", "held", "bytes held"];
  place.append(make("p", count(found.records) + " records arrived from " + found.arrivals[0] + " to " + found.arrivals[1] + "."),
    fillTable(heads, [row("these", "now", found.now), ...(found.proposed ? [row("proposed", "proposed", found.proposed)] : [])]));
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
for (const item of document.querySelectorAll("nav a")) {
  if (item.getAttribute("href") === "/" + page) item.setAttribute("aria-current", "page");
}
({ pipeline: showPipeline, time: showTime, why: showWhy, event: showEvent, messages: showMessages, tune: showTune, history: showHistory })[page]();
