// The pages. Each is one function; what it draws comes from /api and /events.
import { ask, count, link, main, make, makeChoice, page, showValue } from "./common.js";
import { showHistory } from "./history.js";
import { showMessages } from "./messages.js";
import { showPipeline } from "./pipeline.js";
import { showTime } from "./time.js";
import { showTune } from "./tune.js";
import { showWhy } from "./why.js";
async function showEvent() {
  const names = await ask("names"), choices = make("div", null, "choices"), place = make("div");
  main.append(make("h1", "Event"), choices, place);
  if (!names) return;
  const [nameLabel, name] = makeChoice("input or output", "name", [...names.inputs, ...names.outputs]);
  const [placeLabel, at] = makeChoice("topic-partition@offset", "place"), [keyLabel, key] = makeChoice("or key", "key");
  const [whereLabel, where] = makeChoice("or condition, as speed > 50", "where"), [timeLabel, time] = makeChoice("of an output: time", "at");
  const [fromLabel, from] = makeChoice("arrived from", "from"), [untilLabel, until] = makeChoice("until", "until"), isInput = names.inputs.includes(name);
  choices.append(nameLabel, placeLabel, keyLabel, ...(isInput ? [whereLabel, fromLabel, untilLabel] : [timeLabel]));
  if (!at && !key && !where && !time) {
    place.append(make("p", "Name a record: of an input, its place in the raw topic, a key or a condition; of an output, its place or key and time."));
    return;
  }
  place.append(make("p", "Looking for it ..."));
  const found = await ask("event", { name, place: at, key, where, at: time, from, until });
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
for (const item of document.querySelectorAll("nav a")) {
  if (item.getAttribute("href") === "/" + page) item.setAttribute("aria-current", "page");
}
({ pipeline: showPipeline, time: showTime, why: showWhy, event: showEvent, messages: showMessages, tune: showTune, history: showHistory })[page]();
