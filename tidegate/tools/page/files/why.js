// Why: what the next results of an output wait for, and what their delay is made of, over the time in which one looks.
import { ask, figure, follow, main, make, makeChoice, span } from "./common.js";

const CAUSES = ["source", "reorder", "late", "silence", "lag", "batch", "query"];
const WORDS = { source: "old when it came", reorder: "reorder", late: "late tolerance", silence: "silence", lag: "lag", batch: "batch", query: "query" };
// So many looks are kept, one a second at most.
const KEPT = 1800;
const PLACE = { left: 76, right: 10, top: 10, bottom: 22 };
function colours() {
  return matchMedia("(prefers-color-scheme: dark)").matches
    ? { source: "#6b7680", reorder: "#ce93d8", late: "#ffb74d", silence: "#ffd54f", lag: "#ff8a80", batch: "#8ab4f8", query: "#5fd28d", grid: "#ffffff1a", soft: "#a3adb8" }
    : { source: "#9aa4af", reorder: "#7b1fa2", late: "#e08a1e", silence: "#c9a400", lag: "#b3261e", batch: "#1a56b0", query: "#11703a", grid: "#0000001a", soft: "#57606c" };
}
// Draws the points, a line through the *marked* one, and returns where an instant is drawn.
function draw(canvas, points, marked) {
  const scale = devicePixelRatio || 1, width = canvas.clientWidth, height = canvas.clientHeight, pen = canvas.getContext("2d"), colour = colours();
  canvas.width = width * scale; canvas.height = height * scale;
  pen.scale(scale, scale);
  if (points.length < 2) return null;
  const total = ([, causes]) => CAUSES.reduce((sum, cause) => sum + causes[cause], 0);
  const first = points[0][0], last = points[points.length - 1][0], most = Math.max(...points.map(total), 0.001) * 1.1;
  const x = (ms) => PLACE.left + (ms - first) / (last - first) * (width - PLACE.left - PLACE.right);
  const y = (seconds) => height - PLACE.bottom - seconds / most * (height - PLACE.top - PLACE.bottom);
  const below = points.map(() => 0);
  for (const cause of CAUSES) {
    pen.fillStyle = colour[cause];
    pen.beginPath();
    points.forEach(([ms, causes], place) => pen.lineTo(x(ms), y(below[place] + causes[cause])));
    for (let place = points.length - 1; place >= 0; place--) pen.lineTo(x(points[place][0]), y(below[place]));
    pen.fill();
    points.forEach(([, causes], place) => { below[place] += causes[cause]; });
  }
  pen.strokeStyle = colour.grid; pen.fillStyle = colour.soft; pen.font = "11px system-ui"; pen.textAlign = "right"; pen.lineWidth = 1;
  for (let part = 0; part <= 4; part++) {
    const seconds = most / 1.1 * part / 4;
    pen.beginPath(); pen.moveTo(PLACE.left, y(seconds)); pen.lineTo(width - PLACE.right, y(seconds)); pen.stroke();
    pen.fillText(span(seconds), PLACE.left - 6, y(seconds) + 4);
  }
  const clock = (ms) => new Date(ms).toISOString().slice(11, 19);
  pen.fillText(clock(last), width - PLACE.right, height - 6);
  pen.textAlign = "left"; pen.fillText(clock(first), PLACE.left, height - 6);
  if (marked) { pen.strokeStyle = colour.soft; pen.beginPath(); pen.moveTo(x(marked[0]), PLACE.top); pen.lineTo(x(marked[0]), height - PLACE.bottom); pen.stroke(); }
  return x;
}
const describe = ([ms, causes]) => new Date(ms).toISOString().slice(11, 19) + "Z: " + (CAUSES.filter((cause) => causes[cause] > 0).map((cause) => WORDS[cause] + " " + span(causes[cause])).join(", ") || "no delay");
function showHold(hold) {
  const card = make("li", null, "hold"), head = make("div", null, "what");
  head.append(make("span", hold.cause.replaceAll("_", " "), "cause"), make("strong", hold.place || hold.stage), hold.place ? make("span", hold.stage, "soft") : "");
  const facts = make("dl");
  const say = (name, value) => { if (value !== null && value !== undefined && value !== "") facts.append(make("dt", name), make("dd", value)); };
  say("since", hold.since); say("until at the latest", hold.until); say("newest event", hold.event); say("policy", hold.policy);
  card.append(head, make("p", hold.in_words), facts);
  return card;
}
export async function showWhy() {
  const names = await ask("names"), choices = make("div", null, "choices"), place = make("div"), chart = make("div");
  main.append(make("h1", "Why"), choices, place, chart);
  if (!names || !names.outputs.length) return;
  const [label, name] = makeChoice("output", "name", names.outputs), [atLabel, at] = makeChoice("results of this time", "at"), [keyLabel, key] = makeChoice("substream", "key"), canvas = make("canvas", null, "low"), legend = make("p"), told = make("p", " ");
  canvas.setAttribute("role", "img");
  canvas.tabIndex = 0;
  told.setAttribute("role", "status");
  const kept = ["why", name, at, key].join(" ");
  let points = [], x = null, marked = null;
  try { points = JSON.parse(sessionStorage.getItem(kept) || "[]"); } catch { points = []; }
  choices.append(label, atLabel, keyLabel, follow("why", { name, at, key }, (found) => {
    const due = make("p");
    due.append("Complete before ", figure(["why", name, "complete"], found.complete, found.complete || "nothing yet"),
      "; next results due: ", figure(["why", name, "due"], found.due, found.due || "none"), ".");
    const list = make("ul", null, "holds");
    list.append(...found.holds.map(showHold));
    place.replaceChildren(due, found.holds.length ? list : make("p", "Nothing holds them."));
    if (!found.delay_by_cause_s) return;
    points = [...points, [Date.now(), found.delay_by_cause_s]].slice(-KEPT);
    sessionStorage.setItem(kept, JSON.stringify(points));
    if (!chart.children.length) chart.append(make("h2", "Delay by cause"), canvas, told, legend);
    x = draw(canvas, points, marked);
    const shown = CAUSES.filter((cause) => points.some(([, causes]) => causes[cause] > 0));
    legend.replaceChildren(...shown.map((cause) => {
      const made = make("span", null, "key"), mark = make("span", "■ ");
      mark.style.color = colours()[cause];
      made.append(mark, WORDS[cause] + ": ", figure(["why", name, "delay_by_cause_s", cause], found.delay_by_cause_s[cause], span(found.delay_by_cause_s[cause])));
      return made;
    }));
    canvas.setAttribute("aria-label", "The delay of " + span(found.delay_s) + " by cause: " + shown.map((cause) => WORDS[cause] + " " + span(found.delay_by_cause_s[cause])).join(", ") + ". Arrow keys go through what has been since the page was opened.");
  }, () => place.replaceChildren()));
  const mark = (point) => { marked = point; told.textContent = point ? describe(point) : " "; x = draw(canvas, points, point); };
  canvas.addEventListener("pointermove", (event) => {
    if (!x) return;
    const across = event.clientX - canvas.getBoundingClientRect().left, far = (point) => Math.abs(x(point[0]) - across);
    mark(points.reduce((best, point) => far(point) < far(best) ? point : best));
  });
  canvas.addEventListener("pointerleave", () => mark(null));
  canvas.addEventListener("keydown", (event) => {
    const last = points.length - 1, place = points.indexOf(marked), now = place < 0 ? last + 1 : place;
    const next = { ArrowRight: Math.min(now + 1, last), ArrowLeft: Math.max(now - 1, 0), Home: 0, End: last }[event.key];
    if (next === undefined || last < 1) return;
    event.preventDefault();
    mark(points[next]);
  });
  addEventListener("resize", () => { x = draw(canvas, points, marked); });
}
