// The pipeline as a graph and as a table. Each figure names its equal in a command's JSON.
import { count, figure, fillTable, follow, isHeld, link, main, make, refill, setFigure, span, trouble } from "./common.js";
import { Graph, layout } from "./dagre.js";

const SVG = "http://www.w3.org/2000/svg";
// A delay beyond these is warm, and hot.
const WARM_S = 120, HOT_S = 600, LINE = 18, HEAD = 24, MARGIN = 14;
const RUNNING = ["live", "replaying", "starting"];

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}
const known = (value) => value !== null && value !== undefined;
// The delay by which a job is coloured: that of its results, else that of its watermark.
const heatOf = (job) => job.delay ? job.delay.p99_s : job.watermark_delay_s;
const heat = (seconds) => !known(seconds) || seconds < WARM_S ? "" : seconds < HOT_S ? " warm" : " hot";
const dead = (job) => job.dead_letters ? "/messages?" + new URLSearchParams({ topic: job.dead_letters.topic, stage: job.job }) : null;
// The lines below the name of a node: text, the path of the figure, its value, and where a click leads.
function lines(node) {
  const of = (text, path, value, more) => ({ text, path, value, ...more });
  if (node.kind !== "job") return (node.never_spoke || []).map((each) => of("never spoke: " + each, null));
  const found = [], isRunning = RUNNING.includes(node.state);
  found.push(of(node.state, ["state"], node.state, { dot: true }));
  if (isRunning && known(node.events_per_s)) found.push(of(count(node.events_per_s) + " events/s", ["events_per_s"], node.events_per_s));
  if (known(node.lag)) {
    const trend = !node.lag || !node.lag_change ? "" : node.lag_change > 0 ? " ▲" : " ▼";
    found.push(of("lag " + count(node.lag) + trend, ["lag"], node.lag));
    if (node.lag && known(node.lag_s)) found.push(of("oldest waits " + span(node.lag_s), ["lag_s"], node.lag_s));
    if (node.lag && node.cleared_in_s) found.push(of("cleared in " + span(node.cleared_in_s), ["cleared_in_s"], node.cleared_in_s));
  }
  if (known(node.watermark_delay_s)) found.push(of("watermark " + span(node.watermark_delay_s) + " behind", ["watermark_delay_s"], node.watermark_delay_s));
  if (node.delay) {
    found.push(of("delay p50 " + span(node.delay.p50_s), ["delay", "p50_s"], node.delay.p50_s));
    found.push(of("delay p99 " + span(node.delay.p99_s), ["delay", "p99_s"], node.delay.p99_s));
  }
  if (node.dead_letters) {
    found.push(of(count(node.dead_letters.count) + " dead letters", ["dead_letters", "count"], node.dead_letters.count, { href: dead(node) }));
  }
  return found;
}
function looks(node) {
  if (node.kind !== "job") return node.kind + (node.never_spoke && node.never_spoke.length ? " bad" : "");
  const state = RUNNING.includes(node.state) ? "good" : node.state === "stopped" || node.state === "never started" ? "dim" : "bad";
  return "job " + state + (state === "good" ? heat(heatOf(node)) : "");
}
function address(node) {
  if (node.kind === "topic") return "/messages?" + new URLSearchParams({ topic: node.name });
  const [kind, name] = node.name.split(/ (.*)/);
  return kind === "ingest" ? "/time?" + new URLSearchParams({ name }) : kind === "query" ? "/why?" + new URLSearchParams({ name }) : null;
}
// A smooth line through the points of an edge.
function curve(points) {
  const at = (point) => point.x.toFixed(1) + " " + point.y.toFixed(1);
  let path = "M" + at(points[0]);
  for (let place = 1; place < points.length - 1; place++) {
    const end = place === points.length - 2 ? points[place + 1] : { x: (points[place].x + points[place + 1].x) / 2, y: (points[place].y + points[place + 1].y) / 2 };
    path += "Q" + at(points[place]) + " " + at(end);
  }
  return points.length === 2 ? path + "L" + at(points[1]) : path;
}
function drawGraph(graph) {
  const flow = new Graph(), shown = {}, isNarrow = innerWidth < 700;
  flow.setGraph({ rankdir: isNarrow ? "TB" : "LR", nodesep: 28, ranksep: 46, marginx: 8, marginy: 8 });
  flow.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) {
    shown[node.id] = lines(node);
    const width = Math.max(node.name.length * 7.7, ...shown[node.id].map((line) => line.text.length * 6.8 + (line.dot ? 12 : 0))) + 2 * MARGIN;
    flow.setNode(node.id, { width: Math.min(Math.max(width, 90), 300), height: HEAD + shown[node.id].length * LINE + 10 });
  }
  for (const [from, to] of graph.edges) flow.setEdge(from, to);
  layout(flow);
  const size = flow.graph(), picture = draw("svg", { viewBox: `0 0 ${size.width} ${size.height}`, class: "graph", role: "group", "aria-label": "The pipeline" });
  // A small pipeline is not blown up.
  picture.style.maxWidth = size.width * 1.25 + "px";
  const tips = draw("defs", {}), tip = draw("marker", { id: "tip", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 8, markerHeight: 8, orient: "auto" });
  tip.append(draw("path", { d: "M0 0L8 4L0 8Z", class: "tip" }));
  tips.append(tip);
  picture.append(tips);
  for (const edge of flow.edges()) picture.append(draw("path", { d: curve(flow.edge(edge).points), class: "edge", "marker-end": "url(#tip)" }));
  for (const node of graph.nodes) {
    const { x, y, width, height } = flow.node(node.id), target = address(node), left = x - width / 2 + MARGIN, top = y - height / 2;
    const group = draw("g", { class: looks(node) }), body = draw(target ? "a" : "g", target ? { href: target } : {});
    body.append(draw("title", {}, [node.name, ...shown[node.id].map((line) => line.text)].join("\n")),
      draw("rect", { x: x - width / 2, y: top, width, height, rx: node.kind === "job" ? 8 : Math.min(height / 2, 18) }),
      draw("text", { x: left, y: top + HEAD - 4 }, node.name.length > 36 ? node.name.slice(0, 35) + "…" : node.name));
    group.append(body);
    shown[node.id].forEach((line, place) => {
      const at = top + HEAD + 13 + place * LINE, text = draw("text", { x: left + (line.dot ? 12 : 0), y: at, class: "small" }, line.text.length > 42 ? line.text.slice(0, 41) + "…" : line.text);
      if (line.path) setFigure(text, ["status", node.name, ...line.path], line.value);
      if (line.dot) body.append(draw("circle", { cx: left + 4, cy: at - 4, r: 4, class: "dot" }));
      if (!line.href) { body.append(text); return; }
      const opens = draw("a", { href: line.href, class: "letters" });
      opens.append(text);
      group.append(opens);
    });
    picture.append(group);
  }
  return picture;
}
function fillRow(job) {
  const topic = make("td"), note = (job.failure && job.failure.what) || job.waits_for || job.stands_still || "";
  topic.append(link(job.topic, "/messages", { topic: job.topic }));
  const cell = (path, text) => {
    const value = path.reduce((found, name) => known(found) ? found[name] : found, job), made = make("td", null, "number");
    if (known(value)) made.append(figure(["status", job.job, ...path], value, text ? text(value) : value));
    return made;
  };
  const letters = make("td", null, "number");
  if (job.dead_letters) {
    const opens = link("", "/messages", { topic: job.dead_letters.topic, stage: job.job });
    opens.append(figure(["status", job.job, "dead_letters", "count"], job.dead_letters.count, count(job.dead_letters.count)));
    letters.append(opens);
  }
  const state = make("td", null, job.state.split(" ")[0]);
  state.append(figure(["status", job.job, "state"], job.state, job.state));
  const delay = cell(["delay", "p99_s"], span), behind = cell(["watermark_delay_s"], span);
  if (job.delay) delay.className += heat(job.delay.p99_s);
  behind.className += heat(job.watermark_delay_s);
  return [make("th", job.job), state, topic, cell(["events_per_s"], count), cell(["lag"], count), cell(["lag_s"], span), cell(["lag_change"], (change) => (change > 0 ? "+" : "") + count(change)),
    cell(["cleared_in_s"], span), cell(["watermark"]), behind, cell(["delay", "p50_s"], span), delay, cell(["held"], count), letters, note];
}
export function showPipeline() {
  const place = make("div", "Asking Kafka and Redis ..."), table = make("div");
  main.append(make("h1", "Pipeline"), place, make("h2", "Jobs"), table);
  let last = "", isWide = innerWidth >= 700, graph = null;
  follow("pipeline", {}, (found) => {
    const text = JSON.stringify(found.graph);
    trouble.textContent = found.trouble;
    // What has the focus is not replaced.
    if (found.graph && text !== last && !place.contains(document.activeElement)) { graph = found.graph; place.replaceChildren(drawGraph(graph)); last = text; }
    if (isHeld(table)) return;
    refill(table, fillTable(["job", "state", "writes", "events/s", "lag", "oldest waits", "change/s", "cleared in", "watermark", "behind", "delay p50", "delay p99", "held", "dead letters", "remark"],
      found.jobs.map(fillRow)));
  });
  addEventListener("resize", () => { if (graph && isWide !== innerWidth >= 700) { isWide = !isWide; place.replaceChildren(drawGraph(graph)); } });
}
