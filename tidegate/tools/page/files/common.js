// What all pages share. Text of topics is only ever set as textContent, never as markup.
export const main = document.getElementById("main"), trouble = document.getElementById("trouble");
export const page = location.pathname.slice(1) || "pipeline";
export const asked = new URLSearchParams(location.search);

export function make(tag, text, className) {
  const element = document.createElement(tag);
  if (text !== undefined && text !== null) element.textContent = String(text);
  if (className) element.className = className;
  return element;
}
export async function ask(name, parameters) {
  const answer = await fetch("/api/" + name + "?" + new URLSearchParams(parameters || {}));
  const found = await answer.json();
  trouble.textContent = answer.ok ? "" : found.error;
  return answer.ok ? found : null;
}
// Asks for something to be done; null: it was not, and the page says why.
export async function askActions(name, members, key) {
  const headers = { "content-type": "application/json", "x-tidegate-key": key };
  const answer = await fetch("/actions/" + name, { method: "POST", headers, body: JSON.stringify(members) });
  const found = await answer.json();
  trouble.textContent = answer.ok ? "" : found.error;
  return answer.ok ? found : null;
}
export function fillTable(names, rows) {
  const table = make("table"), head = make("tr"), body = make("tbody"), top = make("thead"), wide = make("div", null, "wide");
  for (const name of names) { const cell = make(name ? "th" : "td", name); if (name) cell.scope = "col"; head.append(cell); }
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
// Shows something else in a place. A table that is wider than the window stays where it was moved to, and keeps the focus.
export function refill(place, ...parts) {
  const old = [...place.querySelectorAll(".wide")], moved = old.map((each) => each.scrollLeft), focused = old.indexOf(document.activeElement);
  place.replaceChildren(...parts);
  place.querySelectorAll(".wide").forEach((each, number) => {
    if (each.scrollWidth > each.clientWidth) { each.tabIndex = 0; each.setAttribute("role", "region"); each.setAttribute("aria-label", "a table that is wider than the window"); }
    each.scrollLeft = moved[number] || 0;
    if (number === focused) each.focus({ preventScroll: true });
  });
}
// Whether something in a place has the focus, so that it is not replaced.
export const isHeld = (place) => place.contains(document.activeElement) && !document.activeElement.classList.contains("wide");
export function makeChoice(title, name, options) {
  const label = make("label", title), choice = make(options ? "select" : "input");
  for (const option of options || []) choice.append(make("option", option));
  choice.value = asked.get(name) || (options ? options[0] || "" : "");
  choice.addEventListener("change", () => { asked.set(name, choice.value); location.search = asked.toString(); });
  label.append(choice);
  return [label, choice.value];
}
// Asks again every so often, while the page is seen and not paused.
export function repeat(seconds, step) {
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
// Follows an answer as it changes, while the page is seen and not paused; returns a button that pauses it. A page that is not seen costs nothing.
export function follow(name, parameters, show, fail = () => {}) {
  const pause = make("button", "Pause");
  pause.type = "button";
  let isPaused = false, events = null;
  const turn = () => {
    if (isPaused || document.hidden) { if (events) events.close(); events = null; return; }
    if (events) return;
    events = new EventSource("/events/" + name + "?" + new URLSearchParams(parameters));
    events.addEventListener("trouble", (event) => { trouble.textContent = JSON.parse(event.data).error; fail(); });
    events.addEventListener("error", () => { trouble.textContent = "the server of this page does not answer"; });
    events.addEventListener("answer", (event) => { trouble.textContent = ""; show(JSON.parse(event.data)); });
  };
  pause.addEventListener("click", () => { isPaused = !isPaused; pause.textContent = isPaused ? "Go on" : "Pause"; turn(); });
  document.addEventListener("visibilitychange", turn);
  turn();
  return pause;
}
export function go(changes) {
  for (const [name, value] of Object.entries(changes)) if (value === null || value === "") asked.delete(name); else asked.set(name, value);
  location.search = asked.toString();
}
export function link(text, path, parameters) {
  const made = make("a", text);
  made.href = path + "?" + new URLSearchParams(parameters);
  return made;
}
export function button(text, label, act) {
  const made = make("button", text);
  made.type = "button";
  made.title = label;
  made.addEventListener("click", act);
  return made;
}
// A JSON value as nested lists of names and values.
export function showValue(value) {
  if (value === null || typeof value !== "object") return make("span", value === null ? "-" : value);
  if (Array.isArray(value)) {
    if (value.every((each) => each === null || typeof each !== "object")) return make("span", value.length ? value.join(", ") : "-");
    const list = make("ol");
    for (const each of value) { const item = make("li"); item.append(showValue(each)); list.append(item); }
    return list;
  }
  const list = make("dl");
  for (const [name, each] of Object.entries(value)) {
    const shown = make("dd");
    shown.append(showValue(each));
    list.append(make("dt", name.replaceAll("_", " ")), shown);
  }
  return list;
}
// A figure: what is shown, and where a command's JSON has the same: the command, then the names down to it.
export function setFigure(element, path, value) {
  element.setAttribute("data-figure", JSON.stringify(path));
  element.setAttribute("data-value", JSON.stringify(value));
  return element;
}
export const figure = (path, value, text) => setFigure(make("span", text), path, value);
export const count = (number) => Number(number).toLocaleString("en", { maximumFractionDigits: 1 });
// Seconds as a person says them.
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "";
  const s = Math.abs(seconds), sign = seconds < 0 ? "-" : "";
  return sign + (s < 1 && s > 0 ? Math.round(s * 1000) + " ms" : s < 60 ? +s.toFixed(1) + " s" : s < 600 ? Math.floor(s / 60) + " min " + Math.round(s % 60) + " s" : s < 7200 ? Math.round(s / 60) + " min" : s < 172800 ? Math.round(s / 3600) + " h" : Math.round(s / 86400) + " d");
}
