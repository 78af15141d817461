// Time: arrival across, event time up. Drag to zoom; a click opens the event.
import { ask, asked, button, count, figure, go, main, make, makeChoice, repeat } from "./common.js";

const PLACE = { left: 76, right: 12, top: 12, bottom: 38 };
// Distances of ticks, microseconds.
const STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5,
  1728e5, 6048e5, 2592e6, 7776e6, 31536e6].map((ms) => ms * 1000);
function colours() {
  return matchMedia("(prefers-color-scheme: dark)").matches
    ? { "in order": "#8ab4f8", late: "#ffb74d", "out of order": "#ce93d8", early: "#f48fb1", dropped: "#ff8a80", text: "#ccc", soft: "#a3adb8", grid: "#ffffff14", band: "#ffffff12", cti: "#5fd28d", idle: "#ffd54f" }
    : { "in order": "#1a56b0", late: "#b65c00", "out of order": "#7b1fa2", early: "#ad1457", dropped: "#b3261e", text: "#333", soft: "#57606c", grid: "#00000012", band: "#0000000d", cti: "#11703a", idle: "#8a6d00" };
}
const isDropped = (event) => event[3].startsWith("dropped"), markOf = (what) => what.startsWith("dropped") ? "✕ " : "■ ";
const word = (us) => new Date(us / 1000).toISOString().slice(0, 19) + "Z";

// Scales of what is shown; event times far off do not squeeze all others.
function scales(canvas, found) {
  const arrivals = [], times = [];
  // Neither do those of events that were dropped for them, if there are others.
  const kept = found.events.filter((event) => !isDropped(event));
  for (const [arrival] of found.events) arrivals.push(arrival);
  for (const [, time] of kept.length ? kept : found.events) times.push(time);
  for (const steps of Object.values(found.steps)) for (const [arrival, time] of steps) { arrivals.push(arrival); times.push(time); }
  if (!arrivals.length) return null;
  times.sort((a, b) => a - b);
  const least = arrivals.reduce((a, b) => Math.min(a, b)), most = arrivals.reduce((a, b) => Math.max(a, b)) + 1;
  const cut = times.length > 200 ? Math.floor(times.length * 0.002) : 0, low = times[cut], high = times[times.length - 1 - cut] + 1;
  const width = canvas.clientWidth - PLACE.left - PLACE.right, height = canvas.clientHeight - PLACE.top - PLACE.bottom;
  return {
    left: least, right: most, low, high,
    x: (us) => PLACE.left + (us - least) / (most - least) * width,
    y: (us) => PLACE.top + (high - us) / (high - low) * height,
    arrival: (x) => Math.round(least + (x - PLACE.left) / width * (most - least)),
  };
}
// Round instants between two, about one for each *apart* pixels.
function ticks(low, high, length, apart) {
  const least = (high - low) * apart / length, step = STEPS.find((each) => each >= least) || STEPS[STEPS.length - 1], found = [];
  for (let us = Math.ceil(low / step) * step; us <= high; us += step) found.push(us);
  const isDays = step >= 864e8, word = (us) => { const text = new Date(us / 1000).toISOString(); return isDays ? text.slice(0, 10) : step >= 1e6 ? text.slice(11, 19) : text.slice(11, 23); };
  return found.map((us) => [us, word(us)]);
}
function drawAxes(pen, at, width, height, colour) {
  pen.font = "11px system-ui"; pen.lineWidth = 1; pen.strokeStyle = colour.grid; pen.fillStyle = colour.soft;
  const inner = [width - PLACE.left - PLACE.right, height - PLACE.top - PLACE.bottom];
  pen.textAlign = "center";
  for (const [us, text] of ticks(at.left, at.right, inner[0], 110)) {
    const x = Math.round(at.x(us)) + 0.5;
    pen.beginPath(); pen.moveTo(x, PLACE.top); pen.lineTo(x, height - PLACE.bottom); pen.stroke();
    pen.fillText(text, Math.min(Math.max(x, PLACE.left + 22), width - 28), height - PLACE.bottom + 14);
  }
  pen.textAlign = "right";
  for (const [us, text] of ticks(at.low, at.high, inner[1], 52)) {
    const y = Math.round(at.y(us)) + 0.5;
    pen.beginPath(); pen.moveTo(PLACE.left, y); pen.lineTo(width - PLACE.right, y); pen.stroke();
    pen.fillText(text, PLACE.left - 6, Math.max(y + 4, PLACE.top + 4));
  }
  pen.fillText("arrival " + word(at.left).slice(0, 10) + " →", width - PLACE.right, height - 6);
  pen.textAlign = "left";
  pen.fillText("↑ event time " + word(at.low).slice(0, 10) + (word(at.low).slice(0, 10) === word(at.high).slice(0, 10) ? "" : " to " + word(at.high).slice(0, 10)), 4, height - 6);
}
function draw(canvas, found, chosen, marked) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight, pen = canvas.getContext("2d"), colour = colours();
  canvas.width = width * scale; canvas.height = height * scale;
  pen.scale(scale, scale);
  const at = scales(canvas, found);
  if (!at) return null;
  drawAxes(pen, at, width, height, colour);
  pen.save();
  pen.beginPath();
  pen.rect(PLACE.left, PLACE.top - 2, width - PLACE.left - PLACE.right + 2, height - PLACE.top - PLACE.bottom + 4);
  pen.clip();
  pen.fillStyle = colour.band;
  const band = (shift, edge) => {
    pen.beginPath();
    pen.moveTo(at.x(at.left), at.y(at.left + shift)); pen.lineTo(at.x(at.right), at.y(at.right + shift));
    pen.lineTo(at.x(at.right), edge); pen.lineTo(at.x(at.left), edge); pen.fill();
  };
  if (found.late_us !== null) band(-found.late_us, height + 1e6);
  if (found.early_us !== null) band(found.early_us, -1e6);
  for (const [arrival, time, , what] of found.events) {
    pen.fillStyle = colour[what];
    if (colour[what]) pen.fillRect(at.x(arrival) - 1.5, at.y(time) - 1.5, 3, 3);
  }
  pen.strokeStyle = colour.dropped; pen.lineWidth = 1.2;
  for (const [arrival, time] of found.events.filter(isDropped)) {
    const x = at.x(arrival), y = at.y(time);
    pen.beginPath(); pen.moveTo(x - 3, y - 3); pen.lineTo(x + 3, y + 3); pen.moveTo(x - 3, y + 3); pen.lineTo(x + 3, y - 3); pen.stroke();
  }
  pen.strokeStyle = colour.text; pen.lineWidth = 1.2;
  for (const steps of Object.values(found.steps)) {
    pen.beginPath();
    let last = null;
    for (const [arrival, time] of steps) {
      if (last !== null) pen.lineTo(at.x(arrival), at.y(last));
      pen.lineTo(at.x(arrival), at.y(time));
      last = time;
    }
    if (last !== null) pen.lineTo(at.x(at.right), at.y(last));
    pen.stroke();
  }
  for (const [arrival, time, , cause] of found.ctis) {
    const isIdle = cause === "idle";
    pen.fillStyle = isIdle ? colour.idle : colour.cti;
    pen.beginPath(); pen.arc(at.x(arrival), at.y(time), isIdle ? 2.2 : 1.8, 0, 7); pen.fill();
  }
  pen.setLineDash([6, 4]);
  for (const each of found.held) {
    if (each.from_us === null) continue;
    pen.beginPath(); pen.moveTo(at.x(at.left), at.y(each.from_us)); pen.lineTo(at.x(at.right), at.y(each.from_us)); pen.stroke();
  }
  pen.restore();
  if (marked) {
    pen.strokeStyle = colour.text; pen.lineWidth = 1.5;
    pen.beginPath(); pen.arc(at.x(marked[0]), at.y(marked[1]), 6, 0, 7); pen.stroke();
  }
  if (chosen) {
    pen.fillStyle = colour.band; pen.strokeStyle = colour.text;
    pen.fillRect(chosen[0], PLACE.top, chosen[1] - chosen[0], height - PLACE.top - PLACE.bottom);
    pen.strokeRect(chosen[0], PLACE.top, chosen[1] - chosen[0], height - PLACE.top - PLACE.bottom);
  }
  return at;
}
function nearest(found, at, x, y) {
  let best = null, least = 100;
  for (const event of found.events) {
    const across = at.x(event[0]) - x, up = at.y(event[1]) - y, distance = across * across + up * up;
    if (distance < least) { best = event; least = distance; }
  }
  return best;
}
const origin = (found, event) => (found.partitions[event[4]] || "partition " + event[4]) + "@" + event[5];
function describe(found, event) {
  const moved = event[2] === event[1] ? "" : ", moved to " + word(event[2]);
  return origin(found, event) + ": " + event[3] + ", happened " + word(event[1]) + ", arrived " + word(event[0]) + moved;
}
export async function showTime() {
  const names = await ask("names"), choices = make("div", null, "choices"), canvas = make("canvas"), legend = make("div"), told = make("p", " ");
  told.setAttribute("role", "status");
  main.append(make("h1", "Time"), choices, canvas, told, legend);
  if (!names || !names.inputs.length) return;
  const [label, name] = makeChoice("input", "name", names.inputs), numberPlace = make("label", "partition"), numbers = make("select");
  numberPlace.append(numbers);
  numbers.append(new Option("all", ""));
  numbers.addEventListener("change", () => go({ number: numbers.value }));
  canvas.setAttribute("role", "img");
  canvas.tabIndex = 0;
  const parameters = { name }, [keyLabel] = makeChoice("key or substream", "key");
  for (const each of ["before", "from", "until", "number", "key"]) if (asked.get(each)) parameters[each] = asked.get(each);
  let found = null, at = null, start = null, marked = null;
  const look = async () => {
    const answer = await ask("time", parameters);
    if (!answer || start !== null) return;
    found = answer;
    // The event that the keyboard has chosen stays chosen while it is drawn.
    marked = marked && found.events.find((event) => event[4] === marked[4] && event[5] === marked[5]) || null;
    at = draw(canvas, found, null, marked);
    if (numbers.length === 1) found.partitions.forEach((each, number) => numbers.append(new Option(each, number)));
    numbers.value = asked.get("number") || "";
    const counts = {};
    for (const event of found.events) counts[event[3]] = (counts[event[3]] || 0) + 1;
    const words = Object.entries(counts).map(([what, count]) => count + " " + what).join(", ");
    canvas.setAttribute("aria-label", "Arrival across, event time up: " + words + ". Arrow keys go from event to event, Enter opens one.");
    const mark = (colour, text, sign = "■ ") => { const made = make("span", sign + text, "key"); made.style.color = colours()[colour]; return made; };
    const marks = Object.entries(counts).map(([what, count]) => mark(what.startsWith("dropped") ? "dropped" : what, what + ": " + count, markOf(what)));
    if (found.ctis.length) marks.push(mark("cti", "CTIs: " + found.ctis.filter((cti) => cti[3] !== "idle").length));
    const estimates = found.ctis.filter((cti) => cti[3] === "idle").length;
    if (estimates) marks.push(mark("idle", "estimates made in silence: " + estimates));
    const held = found.held.map((each) => make("p", each.partition + " holds " + each.held.toLocaleString("en") + " events" +
      (each.from_us === null ? "" : ", the first of " + word(each.from_us) + ": released when the watermark is above that (dashed)") + "."));
    const looked = make("p");
    looked.append(count(found.events.filter((event) => !isDropped(event)).length) + " of ", figure(["watermarks", name, "looked_at"], found.looked_at, count(found.looked_at)), " events of " + found.topic + (parameters.key ? " with the key " + parameters.key : "") +
      (parameters.key && found.over ? ". Lines: the watermark of this substream in each input partition where it occurs. " : ". Lines: the watermark of each input partition. ") + "Shaded: beyond the early (above) and the late tolerance (below). " +
      (found.dropped_topic ? "Dropped events: " + found.dropped_topic + (parameters.key && found.over ? ", not known by substream. " : ". ") : "Dropped events are not in that topic, and are shown if the input has a dropped_topic. ") +
      "Drag to zoom, click a point to open its event.");
    legend.replaceChildren(...marks, ...held, looked);
  };
  const open = (event) => { location.href = "/event?" + new URLSearchParams({ name, place: origin(found, event) }); };
  const isStill = asked.get("before") || asked.get("from");
  const zoom = (factor, shift) => {
    if (!at) return;
    const width = at.right - at.left, middle = (at.left + at.right) / 2 + shift * width, half = width * factor / 2;
    go({ from: String(Math.round(middle - half)), until: String(Math.round(middle + half)) });
  };
  const goBack = () => { if (at) go({ before: String(Math.round(at.low)), from: null, until: null }); };
  choices.append(label, numberPlace, keyLabel, button("Zoom in", "the middle half of these arrivals", () => zoom(0.5, 0)),
    button("Zoom out", "twice as long a time", () => zoom(2, 0)), button("◀", "earlier arrivals", () => zoom(1, -0.5)),
    button("▶", "later arrivals", () => zoom(1, 0.5)), button("Further back", "what the topic holds before these", goBack),
    button("Live", "the newest events", () => go({ before: null, from: null, until: null })));
  if (isStill) await look(); else choices.append(repeat(3, look));
  const inside = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener("pointerdown", (event) => { start = inside(event); });
  canvas.addEventListener("pointermove", (event) => {
    if (!found || !at) return;
    const [x, y] = inside(event);
    if (start !== null) { draw(canvas, found, [Math.min(start[0], x), Math.max(start[0], x)]); return; }
    const under = nearest(found, at, x, y);
    told.textContent = under ? describe(found, under) : " ";
    canvas.style.cursor = under ? "pointer" : "crosshair";
  });
  canvas.addEventListener("pointerup", (event) => {
    if (start === null || !found || !at) { start = null; return; }
    const [x, y] = inside(event), from = Math.min(start[0], x), until = Math.max(start[0], x);
    start = null;
    if (until - from > 6) { go({ from: String(at.arrival(from)), until: String(at.arrival(until)) }); return; }
    const under = nearest(found, at, x, y);
    if (under) open(under);
  });
  canvas.addEventListener("keydown", (event) => {
    if (!found || !found.events.length) return;
    if (event.key === "Enter" && marked) { open(marked); return; }
    // Events come by rising arrivals.
    const last = found.events.length - 1, place = found.events.indexOf(marked);
    const next = { ArrowRight: Math.min(place + 1, last), ArrowLeft: Math.max(place - 1, 0), Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    marked = found.events[next];
    told.textContent = describe(found, marked);
    at = draw(canvas, found, null, marked);
  });
  addEventListener("resize", () => { if (found) at = draw(canvas, found, null, marked); });
}
