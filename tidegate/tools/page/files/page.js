// The page. Text of topics is only ever set as textContent, never as markup.
"use strict";
const main = document.getElementById("main"), trouble = document.getElementById("trouble");
const page = location.pathname.slice(1) || "pipeline";
const asked = new URLSearchParams(location.search);

function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = String(text);
  if (className) element.className = className;
  return element;
}
async function ask(name, parameters) {
  const answer = await fetch("/api/" + name + "?" + new URLSearchParams(parameters || {}));
  const found = await answer.json();
  trouble.textContent = answer.ok ? "" : found.error;
  return answer.ok ? found : null;
}
function fillTable(names, rows) {
  const table = make("table"), head = make("tr"), body = make("tbody"), top = make("thead"), wide = make("div", null, "wide");
  for (const name of names) { const cell = make("th", name); cell.scope = "col"; head.append(cell); }
  top.append(head);
  for (const row of rows) {
    const line = make("tr");
    for (const cell of row) line.append(cell instanceof Node ? cell : make("td", cell));
    body.append(line);
  }
  table.append(top, body);
  wide.append(table);
  return wide;
}
function makeChoice(title, name, options) {
  const label = make("label", title), choice = make(options ? "select" : "input");
  for (const option of options || []) choice.append(make("option", option));
  choice.value = asked.get(name) || (options ? options[0] || "" : "");
  choice.addEventListener("change", () => { asked.set(name, choice.value); location.search = asked.toString(); });
  label.append(choice);
  return [label, choice.value];
}
// Asks again every so often, while the page is seen and not paused.
function repeat(seconds, step) {
  const pause = make("button", "Pause");
  pause.type = "button";
  let isPaused = false;
  pause.addEventListener("click", () => { isPaused = !isPaused; pause.textContent = isPaused ? "Go on" : "Pause"; });
  const turn = async () => {
    if (!isPaused && !document.hidden) {
      try { await step(); } catch (error) { trouble.textContent = "the server of this page does not answer"; }
    }
    setTimeout(turn, seconds * 1000);
  };
  turn();
  return pause;
}
function showPipeline() {
  const place = make("div");
  main.append(make("h1", "Pipeline"), place);
  const events = new EventSource("/events/pipeline");
  events.addEventListener("trouble", (event) => { trouble.textContent = JSON.parse(event.data).error; });
  events.addEventListener("error", () => { trouble.textContent = "the server of this page does not answer"; });
  events.addEventListener("answer", (event) => {
    trouble.textContent = "";
    const rows = JSON.parse(event.data).jobs.map((job) => {
      const recovery = job.recovery || {}, topic = make("td"), link = make("a", job.topic);
      link.href = "/messages?" + new URLSearchParams({ topic: job.topic });
      topic.append(link);
      const note = (job.failure && job.failure.what) || job.waits_for || job.stands_still || "";
      return [job.job, make("td", job.state, job.state.split(" ")[0]), topic, job.lag, recovery.rate, recovery.eta_s, job.watermark, job.held,
        job.unreadable, note];
    });
    place.replaceChildren(fillTable(
      ["job", "state", "writes", "lag, events", "events/s", "caught up in, s", "watermark", "held", "dead letters", "remark"], rows));
  });
}
function colours() {
  const isDark = matchMedia("(prefers-color-scheme: dark)").matches;
  return isDark ? { "in order": "#8ab4f8", late: "#ffb74d", "out of order": "#ce93d8", early: "#ff8a80", text: "#ccc", band: "#ffffff14" }
    : { "in order": "#1a56b0", late: "#b65c00", "out of order": "#7b1fa2", early: "#b3261e", text: "#333", band: "#00000010" };
}
function draw(canvas, found) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight, pen = canvas.getContext("2d");
  canvas.width = width * scale; canvas.height = height * scale;
  pen.scale(scale, scale);
  const colour = colours(), arrivals = found.events.map((event) => event[0]), times = found.events.map((event) => event[1]);
  if (!arrivals.length) return;
  const least = (values) => values.reduce((a, b) => Math.min(a, b)), most = (values) => values.reduce((a, b) => Math.max(a, b));
  const left = least(arrivals), right = most(arrivals) + 1, low = least(times), high = most(times) + 1;
  const x = (us) => 10 + (us - left) / (right - left) * (width - 20), y = (us) => height - 24 - (us - low) / (high - low) * (height - 40);
  if (found.late_us !== null) {
    pen.fillStyle = colour.band;
    pen.beginPath();
    pen.moveTo(x(left), y(left - found.late_us)); pen.lineTo(x(right), y(right - found.late_us));
    pen.lineTo(x(right), height - 24); pen.lineTo(x(left), height - 24); pen.fill();
  }
  for (const [arrival, time, , what] of found.events) {
    pen.fillStyle = colour[what];
    pen.fillRect(x(arrival) - 1.5, y(time) - 1.5, 3, 3);
  }
  pen.strokeStyle = colour.text; pen.lineWidth = 1.2;
  for (const steps of Object.values(found.steps)) {
    pen.beginPath();
    let last = null;
    for (const [arrival, time] of steps) {
      if (last !== null) pen.lineTo(x(arrival), y(last));
      pen.lineTo(x(arrival), y(time));
      last = time;
    }
    if (last !== null) pen.lineTo(x(right), y(last));
    pen.stroke();
  }
  pen.fillStyle = colour.text; pen.font = "12px system-ui";
  const word = (us) => new Date(us / 1000).toISOString().slice(0, 19) + "Z";
  pen.fillText(word(left), 10, height - 6); pen.textAlign = "right"; pen.fillText(word(right), width - 10, height - 6);
  pen.textAlign = "left"; pen.fillText("event time to " + word(high), 10, 14);
}
async function showTime() {
  const names = await ask("names"), choices = make("div", null, "choices"), canvas = make("canvas"), legend = make("div");
  main.append(make("h1", "Time"), choices, canvas, legend);
  if (!names || !names.inputs.length) return;
  const [label, name] = makeChoice("input", "name", names.inputs);
  canvas.setAttribute("role", "img");
  choices.append(label, repeat(3, async () => {
    const found = await ask("time", { name });
    if (!found) return;
    draw(canvas, found);
    const counts = {};
    for (const event of found.events) counts[event[3]] = (counts[event[3]] || 0) + 1;
    const words = Object.entries(counts).map(([what, count]) => count + " " + what).join(", ");
    canvas.setAttribute("aria-label", "Arrival across, event time up: " + words);
    const marks = Object.entries(counts).map(([what, count]) => {
      const mark = make("span", "■ " + what + ": " + count + "  ");
      mark.style.color = colours()[what];
      return mark;
    });
    legend.replaceChildren(...marks, make("p", found.events.length + " of the newest " + found.looked_at +
      " events of " + found.topic + ". Lines: the watermark of each input partition. Shaded: later than the late tolerance."));
  }));
}
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
for (const link of document.querySelectorAll("nav a")) {
  if (link.getAttribute("href") === "/" + page) link.setAttribute("aria-current", "page");
}
({ pipeline: showPipeline, time: showTime, why: showWhy, messages: showMessages })[page]();
