// Tune: recorded events, and the policies as sliders. A process of the server keeps the records while one moves them.
import { ask, asked, button, count, figure, fillTable, go, isHeld, main, make, makeChoice, refill, span } from "./common.js";

const SVG = "http://www.w3.org/2000/svg", TOLERANCES = ["early", "late", "reorder"];
const ACTIONS = { early_action: "early events", late_action: "late events", out_of_order_action: "events out of order" };
const RECORDS = ["100000", "300000", "1000000", "3000000"], TOUCH = "0.1";
const UNITS = { us: 1, ms: 1e3, s: 1e6, m: 6e7, h: 36e8, d: 864e8 };
// What a slider can be moved to; the field beside it takes any duration.
const STEPS = ["0s", ..."1 2 3 5 7 10 20 30 50 70 100 200 300 400 500 700".split(" ").map((ms) => ms + "ms"), ..."1 2 3 4 5 6 7 8 9 10 12 15 20 25 30 35 40 45 50".split(" ").map((s) => s + "s"),
  ..."1 2 3 4 5 6 7 8 9 10 12 15 20 25 30 35 40 45 50".split(" ").map((m) => m + "m"), ..."1 2 3 4 5 6 8 10 12 16 20".split(" ").map((h) => h + "h"), ..."1 2 3 5 7 10 15 20".split(" ").map((d) => d + "d")];
const STEPS_US = STEPS.map(readDuration);

// Microseconds of 1h30m; Infinity of off, NaN of what is no duration.
function readDuration(text) {
  if (text === "off") return Infinity;
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(us|ms|s|m|h|d)/g)];
  return parts.length && parts.map((part) => part[0]).join("") === text ? parts.reduce((sum, [, number, unit]) => sum + Number(number) * UNITS[unit], 0) : NaN;
}
// The number of the step nearest to a duration; that of off is the last.
function stepOf(text) {
  const us = readDuration(text);
  if (us === Infinity) return STEPS.length;
  let best = 0;
  STEPS_US.forEach((step, number) => { if (Math.abs(step - us) < Math.abs(STEPS_US[best] - us)) best = number; });
  return best;
}
const share = (part) => (part * 100).toFixed(part > 0 && part < 0.01 ? 3 : 1) + " %";
const remember = () => history.replaceState(null, "", "?" + asked.toString());

// A slider and a field for one tolerance; *change* is called while it is moved.
function makeSlider(name, change) {
  const group = make("div", null, "slider"), slider = make("input"), field = make("input"), label = make("label", name);
  slider.type = "range"; slider.min = "0"; slider.max = String(STEPS.length - (name === "reorder" ? 1 : 0)); slider.step = "1";
  slider.id = "slider-" + name; label.htmlFor = slider.id;
  field.setAttribute("aria-label", name + ", as a duration"); field.size = 8;
  const show = (text) => { field.value = text; slider.value = String(stepOf(text)); slider.setAttribute("aria-valuetext", text); };
  slider.addEventListener("input", () => { const text = STEPS[slider.value] || "off"; show(text); change(name, text); });
  field.addEventListener("change", () => { show(field.value); change(name, field.value); });
  group.append(label, slider, field);
  return { group, show };
}
function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}
const describe = (point) => "late " + point.late + ", reorder " + point.reorder + ": " + share(point.touched_share) + " touched, delay p99 " + span(point.watermark_delay_s.p99);
// The curve of delay against events touched; a point of it is taken by a click, or with Enter.
function drawCurve(found, take) {
  const width = Math.max(Math.min(main.clientWidth, 900), 300), height = 300, left = 70, bottom = 40, least = -6;
  const picture = draw("svg", { viewBox: `0 0 ${width} ${height}`, class: "curve", role: "group", "aria-label": "Watermark delay of 99 of 100 events, against events touched" });
  const marks = [["in tidegate.toml", found.in_force, "force"], ["these", found.now, "these"]].filter(([, each]) => each && each.watermark_delay_s.p99 !== null);
  const points = found.curve, all = [...points, ...marks.map(([, each]) => each)];
  const power = (part) => Math.max(Math.log10(Math.max(part, 1e-9)), least);
  const delays = all.map((each) => each.watermark_delay_s.p99), most = Math.max(...delays, 0.001) * 1.05, lowest = Math.min(...delays, 0), first = Math.floor(Math.min(...all.map((each) => power(each.touched_share)), -1));
  const x = (part) => left + (power(part) - first) / -first * (width - left - 20), y = (seconds) => height - bottom - (seconds - lowest) / (most - lowest) * (height - bottom - 12);
  const isNarrow = width < 500;
  for (let each = first; each <= 0; each++) {
    const across = x(10 ** each);
    picture.append(draw("line", { x1: across, x2: across, y1: 12, y2: height - bottom, class: "lane" }), draw("text", { x: across, y: height - bottom + 16, class: "small", "text-anchor": each ? "middle" : "end" }, isNarrow && (each - first) % 2 ? "" : each === least ? "none" : +(10 ** each * 100).toPrecision(1) + " %"));
  }
  for (let part = 0; part <= 4; part++) {
    const seconds = lowest + (most / 1.05 - lowest) * part / 4;
    picture.append(draw("line", { x1: left, x2: width - 20, y1: y(seconds), y2: y(seconds), class: "lane" }), draw("text", { x: left - 6, y: y(seconds) + 4, class: "small", "text-anchor": "end" }, span(seconds)));
  }
  picture.append(draw("text", { x: width - 20, y: height - 6, class: "small", "text-anchor": "end" }, "events touched →"), draw("text", { x: 4, y: height - 6, class: "small" }, "↑ watermark delay p99"));
  if (points.length > 1) picture.append(draw("polyline", { points: points.map((each) => x(each.touched_share) + "," + y(each.watermark_delay_s.p99)).join(" "), class: "line" }));
  for (const point of points) {
    const dot = draw("circle", { cx: x(point.touched_share), cy: y(point.watermark_delay_s.p99), r: 6, class: "point", tabindex: 0, role: "button", "aria-label": "Take " + describe(point) });
    dot.append(draw("title", {}, describe(point)));
    dot.addEventListener("click", () => take(point));
    dot.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); take(point); } });
    picture.append(dot);
  }
  for (const [title, each, kind] of marks) {
    const mark = draw("circle", { cx: x(each.touched_share), cy: y(each.watermark_delay_s.p99), r: 8, class: "mark " + kind });
    mark.append(draw("title", {}, title + ": " + describe(each)));
    picture.append(mark);
  }
  return picture;
}
function fillForecasts(found, name) {
  const row = (title, kind, each) => {
    const cell = (path, text) => {
      const value = path.reduce((part, step) => part === undefined || part === null ? undefined : part[step], each), made = make("td", null, "number");
      if (value !== undefined && value !== null) made.append(figure(["tune", name, kind, ...path], value, text ? text(value) : value));
      return made;
    };
    const results = (each.results || []).map((_, place) => cell(["results", place, "changed"], (changed) => count(changed) + " of " + count(each.results[place].windows)));
    return [make("th", title), cell(["early"]), cell(["late"]), cell(["reorder"]), cell(["moved"], count), cell(["dropped"], count), cell(["touched_share"], share),
      cell(["watermark_delay_s", "p50"], span), cell(["watermark_delay_s", "p99"], span), cell(["held_max"], count), cell(["held_bytes"], count), ...results];
  };
  const heads = ["policies", "early", "late", "reorder", "moved", "dropped", "touched", "delay p50", "p99", "held", "bytes held", ...(found.now.results || []).map((each) => "results changed, " + each.window)];
  const rows = [...(found.in_force ? [row("in tidegate.toml", "in_force", found.in_force)] : []), row("these", "now", found.now)];
  return fillTable(heads, [...rows, ...(found.proposed ? [row("proposed", "proposed", found.proposed)] : [])]);
}
// What these policies do, as one says it.
function inWords(forecast) {
  const each = forecast, held = count(each.held_max) + " events" + (each.held_bytes === null ? "" : " (" + count(each.held_bytes) + " bytes)");
  const results = (each.results || []).map((one) => count(one.changed) + " of " + count(one.windows) + " windows of " + one.window + " changed" + (one.differ === undefined ? "" : ", " + count(one.differ) + " other than in tidegate.toml"));
  return [count(each.moved) + " moved", count(each.dropped) + " dropped", "watermark delay p50 " + (span(each.watermark_delay_s.p50) || "none") + ", p99 " + (span(each.watermark_delay_s.p99) || "none"),
    "at most " + held + " held", ...results].join("; ") + ".";
}
function showDifference(found, name) {
  const part = make("section"), changes = Object.entries(found.tried_changes || {});
  part.append(make("h2", "The difference to tidegate.toml"));
  if (!changes.length) { part.append(make("p", "None: these are the policies in force.")); return part; }
  const lines = ["  [inputs." + name + "]", ...changes.flatMap(([setting, each]) => ["- " + setting + ' = "' + each.old + '"', "+ " + setting + ' = "' + each.new + '"'])];
  const text = lines.join("\n"), shown = make("pre", text), told = make("span", "", "soft");
  told.setAttribute("role", "status");
  const copy = async () => {
    try { await navigator.clipboard.writeText(text + "\n"); told.textContent = " Copied."; } catch {
      getSelection().selectAllChildren(shown);
      told.textContent = " Selected: copy it with the keyboard.";
    }
  };
  const copies = make("p");
  copies.append(button("Copy", "copy the difference", copy), told);
  part.append(shown, copies);
  return part;
}
export async function showTune() {
  const names = await ask("names"), choices = make("div", null, "choices"), sliders = make("fieldset", null, "sliders"), told = make("p", "Reading the records ..."), place = make("div");
  main.append(make("h1", "Tune"), choices, sliders, told, place);
  if (!names || !names.inputs.length) return;
  const [nameLabel, name] = makeChoice("input", "name", names.inputs);
  if (!asked.get("limit")) asked.set("limit", RECORDS[1]);
  const [limitLabel, limit] = makeChoice("newest records", "limit", RECORDS), [fromLabel, from] = makeChoice("since (6h, a time)", "from");
  const [windowLabel, window_] = makeChoice("windows (1m, 5m/1m)", "window"), [touchLabel, touch] = makeChoice("at most touched, %", "touch");
  choices.append(nameLabel, limitLabel, fromLabel, windowLabel, touchLabel);
  told.setAttribute("role", "status");
  const parameters = () => ({ name, limit, from, window: window_, touch: touch || TOUCH, ...Object.fromEntries([...TOLERANCES, ...Object.keys(ACTIONS)].map((each) => [each, asked.get(each) || ""])) });
  let isBusy = false, isAgain = false;
  const change = (setting, text) => { if (text === "") asked.delete(setting); else asked.set(setting, text); remember(); look(); };
  const made = Object.fromEntries(TOLERANCES.map((each) => [each, makeSlider(each, change)])), actions = {};
  sliders.append(make("legend", "Policies"), ...TOLERANCES.map((each) => made[each].group));
  const choose = make("div", null, "choices");
  for (const [setting, title] of Object.entries(ACTIONS)) {
    const label = make("label", title), choice = make("select");
    choice.append(new Option("adjust", "adjust"), new Option("drop", "drop"));
    choice.addEventListener("change", () => change(setting, choice.value));
    label.append(choice);
    choose.append(label);
    actions[setting] = choice;
  }
  choose.append(button("As in tidegate.toml", "the policies in force", () => go(Object.fromEntries([...TOLERANCES, ...Object.keys(ACTIONS)].map((each) => [each, null])))));
  sliders.append(choose);
  const take = (point, early) => {
    asked.set("late", point.late); asked.set("reorder", point.reorder);
    if (early) asked.set("early", early);
    remember(); look();
  };
  const show = (found) => {
    const focused = document.activeElement;
    // What one moves is not moved back under the pointer.
    for (const each of TOLERANCES) if (!made[each].group.contains(focused)) made[each].show(found.now[each]);
    for (const [setting, choice] of Object.entries(actions)) choice.value = found.now[setting];
    told.textContent = inWords(found.now);
    const hadFocus = isHeld(place) ? focused.getAttribute("aria-label") || focused.textContent : null;
    const proposal = make("p"), best = found.proposal;
    if (best) {
      const early = found.early === found.now.early ? "" : "early = " + found.early + ", ";
      proposal.append(make("strong", "For at most " + +(found.share * 100).toPrecision(6) + " % moved: " + early + "late = " + best.late + ", reorder = " + best.reorder), " ", button("Take these", "set the sliders to the proposal", () => take(best, found.early)));
    } else proposal.append("No tolerances touch at most " + +(found.share * 100).toPrecision(6) + " % of the events.");
    const records = make("p", count(found.records) + " records" + (found.arrivals ? " arrived from " + found.arrivals[0] + " to " + found.arrivals[1] : "") + ". ");
    records.append(button("Read again", "read the newest records", () => { isRefreshed = true; look(); }));
    const parts = [fillForecasts(found, name), proposal, showDifference(found, name)];
    if (found.curve.length) {
      parts.push(make("h2", "Delay against events touched"), drawCurve(found, take), fillTable(["late", "reorder", "events touched", "share", "delay p50", "p99", ""],
        found.curve.map((each) => [each.late, each.reorder, count(each.touched), share(each.touched_share), span(each.watermark_delay_s.p50), span(each.watermark_delay_s.p99),
          button("Take", "Take " + describe(each), () => take(each))])));
    }
    refill(place, ...parts, records, make("p", "In a terminal: " + found.command, "soft"));
    if (hadFocus) [...place.querySelectorAll("button, circle[tabindex]")].find((each) => (each.getAttribute("aria-label") || each.textContent) === hadFocus)?.focus();
  };
  let isRefreshed = false;
  // While one answer is on its way, only the newest position of the sliders is asked for next.
  const look = async () => {
    if (isBusy) { isAgain = true; return; }
    isBusy = true;
    try {
      const again = isRefreshed ? { again: String(Date.now()) } : {};
      isRefreshed = false;
      const found = await ask("tune", { ...parameters(), ...again });
      if (found) show(found); else if (told.textContent.startsWith("Reading")) told.textContent = "";
    } catch { document.getElementById("trouble").textContent = "the server of this page does not answer"; }
    isBusy = false;
    if (isAgain) { isAgain = false; look(); }
  };
  for (const each of TOLERANCES) if (asked.get(each)) made[each].show(asked.get(each));
  await look();
}
