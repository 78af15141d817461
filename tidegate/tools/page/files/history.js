// History: what has happened to each job, and the journal's facts, on one time axis and as a table.
import { asked, ask, fillTable, main, make, makeChoice, refill, repeat } from "./common.js";

const SVG = "http://www.w3.org/2000/svg", LANE = 34, LEFT = 150, TOP = 10, KINDS = ["started", "caught up", "stopped", "failed", "killed", "gone", "refused", "settings changed", "silence", "joined"];
const SPANS = [["the last hour", 3600], ["a day", 86400], ["a week", 604800], ["all", 0]];
function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}
function drawAxis(entries, first, last) {
  const jobs = [...new Set(entries.map((each) => each.job))].sort(), width = Math.max(main.clientWidth, 320), left = Math.min(LEFT, width / 3);
  const height = jobs.length * LANE + TOP + 30, picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "axis", role: "img", "aria-label": "What happened, by time" });
  const x = (ms) => left + (ms - first) / Math.max(last - first, 1) * (width - left - 16);
  jobs.forEach((job, lane) => {
    const y = TOP + lane * LANE + LANE / 2;
    picture.append(draw("line", { x1: left, x2: width - 16, y1: y, y2: y, class: "lane" }), draw("text", { x: 0, y: y + 4 }, job.length > 20 ? job.slice(0, 19) + "…" : job));
  });
  const parts = last === first ? 0 : width < 500 ? 1 : 3;
  for (let part = 0; part <= parts; part++) {
    const ms = parts ? first + (last - first) * part / parts : first, text = new Date(ms).toISOString();
    picture.append(draw("text", { x: x(ms), y: height - 8, class: "small", "text-anchor": part === 0 ? "start" : part === parts ? "end" : "middle" }, last - first > 864e5 ? text.slice(0, 10) : text.slice(11, 19)));
  }
  for (const each of entries) {
    const dot = draw("circle", { cx: x(Date.parse(each.at)).toFixed(1), cy: TOP + jobs.indexOf(each.job) * LANE + LANE / 2, r: 6, class: "happened k" + KINDS.indexOf(each.what) });
    dot.append(draw("title", {}, each.at + " " + each.job + ": " + each.what + (each.more ? ", " + each.more : "")));
    picture.append(dot);
  }
  return picture;
}
export function showHistory() {
  const choices = make("div", null, "choices"), picture = make("div"), place = make("div"), legend = make("p");
  main.append(make("h1", "History"), choices, picture, legend, place);
  const [fromLabel, from] = makeChoice("from", "from"), [untilLabel, until] = makeChoice("until", "until");
  const [spanLabel, spanName] = makeChoice("show", "span", SPANS.map(([name]) => name)), [jobLabel, job] = makeChoice("job", "job");
  if (!asked.get("span")) spanLabel.querySelector("select").value = "all";
  const seconds = asked.get("span") ? (SPANS.find(([name]) => name === spanName) || SPANS[3])[1] : 0;
  choices.append(spanLabel, fromLabel, untilLabel, jobLabel, repeat(5, async () => {
    const found = await ask("history");
    if (!found) return;
    // A time that cannot be read bounds nothing.
    const since = Date.parse(from) || (seconds ? Date.now() - seconds * 1000 : -Infinity), end = Date.parse(until) || Infinity;
    const entries = [...found.history, ...found.facts].filter((each) => Date.parse(each.at) >= since && Date.parse(each.at) < end && (!job || each.job.includes(job)));
    entries.sort((a, b) => a.at < b.at ? 1 : -1);
    if (!entries.length) { picture.replaceChildren(make("p", "Nothing has happened.")); place.replaceChildren(); return; }
    const times = entries.map((each) => Date.parse(each.at));
    picture.replaceChildren(drawAxis(entries, Number.isFinite(since) ? since : Math.min(...times), Number.isFinite(end) ? end : Math.max(...times, seconds ? Date.now() : 0)));
    legend.replaceChildren(...KINDS.filter((kind) => entries.some((each) => each.what === kind)).map((kind) => {
      const made = make("span", null, "key");
      made.append(make("span", "● ", "k" + KINDS.indexOf(kind)), kind);
      return made;
    }));
    refill(place, fillTable(["at", "job", "what", "more"], entries.map((each) =>
      [each.at, each.job, make("td", each.what + (each.times > 1 ? " (" + each.times + " times)" : ""), "k" + KINDS.indexOf(each.what)), each.more])));
  }));
}
