// The pipeline as a graph and as a table.
import { fillTable, link, main, make, span, trouble } from "./common.js";
import { Graph, layout } from "./dagre.js";

const SVG = "http://www.w3.org/2000/svg";
const WARM_S = 60, HOT_S = 600;

function draw(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  if (text !== undefined) element.textContent = text;
  return element;
}
// The lines of a node: its name, and the figures that are known.
function lines(node) {
  if (node.kind !== "job") return node.never_spoke && node.never_spoke.length ? [node.name, "never spoke: " + node.never_spoke.join(", ")] : [node.name];
  const isRunning = node.state === "live" || node.state === "replaying", rate = isRunning && node.recovery && node.recovery.rate, trend = node.lag_change ? (node.lag_change > 0 ? ", growing" : ", shrinking") : "";
  const lag = node.lag === undefined ? "" : "lag " + Number(node.lag).toLocaleString("en") + (node.lag_s ? ", " + span(node.lag_s) : "") + trend;
  return [node.name, node.state + (rate ? ", " + Number(rate).toLocaleString("en") + "/s" : ""), lag,
    node.lag && node.cleared_in_s ? "cleared in " + span(node.cleared_in_s) : "",
    node.watermark_delay_s === null || node.watermark_delay_s === undefined ? "" : "watermark " + span(node.watermark_delay_s) + " behind"].filter(Boolean);
}
function looks(node) {
  if (node.kind !== "job") return node.kind + (node.never_spoke && node.never_spoke.length ? " bad" : "");
  const state = node.state === "live" || node.state === "replaying" || node.state === "starting" ? "good"
    : node.state === "stopped" || node.state === "never started" ? "dim" : "bad";
  const heat = state !== "good" || !node.watermark_delay_s ? "" : node.watermark_delay_s > HOT_S ? " hot" : node.watermark_delay_s > WARM_S ? " warm" : "";
  return "job " + state + heat;
}
function address(node) {
  if (node.kind === "topic") return "/messages?" + new URLSearchParams({ topic: node.name });
  const [kind, name] = node.name.split(/ (.*)/);
  return kind === "ingest" ? "/time?" + new URLSearchParams({ name }) : kind === "query" ? "/why?" + new URLSearchParams({ name }) : null;
}
function drawGraph(graph) {
  const flow = new Graph(), shown = {};
  flow.setGraph({ rankdir: innerWidth < 700 ? "TB" : "LR", nodesep: 24, ranksep: 40, marginx: 8, marginy: 8 });
  flow.setDefaultEdgeLabel(() => ({}));
  for (const node of graph.nodes) {
    shown[node.id] = lines(node);
    const width = Math.min(Math.max(...shown[node.id].map((line) => line.length)) * 7.4 + 24, 300);
    flow.setNode(node.id, { width, height: shown[node.id].length * 17 + 14 });
  }
  for (const [from, to] of graph.edges) flow.setEdge(from, to);
  layout(flow);
  const size = flow.graph(), picture = draw("svg", { viewBox: `0 0 ${size.width} ${size.height}`, class: "graph", role: "group", "aria-label": "The pipeline" });
  // A small pipeline is not blown up.
  picture.style.maxWidth = size.width * 1.3 + "px";
  for (const edge of flow.edges()) {
    const points = flow.edge(edge).points;
    picture.append(draw("path", { d: "M" + points.map((point) => point.x + " " + point.y).join("L") }));
    const last = points[points.length - 1];
    picture.append(draw("circle", { cx: last.x, cy: last.y, r: 3, fill: "currentColor" }));
  }
  for (const node of graph.nodes) {
    const { x, y, width, height } = flow.node(node.id), target = address(node), group = draw(target ? "a" : "g", { class: looks(node) });
    if (target) group.setAttribute("href", target);
    group.append(draw("title", {}, shown[node.id].join("\n")),
      draw("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: node.kind === "topic" ? height / 3 : 5 }));
    shown[node.id].forEach((line, place) => group.append(draw("text", { x: x - width / 2 + 12, y: y - height / 2 + 20 + place * 17,
      class: place ? "small" : "" }, line.length > 42 ? line.slice(0, 41) + "…" : line)));
    picture.append(group);
  }
  return picture;
}
export function showPipeline() {
  const place = make("div", "Asking Kafka and Redis ..."), table = make("div");
  main.append(make("h1", "Pipeline"), place, table);
  const events = new EventSource("/events/pipeline");
  let last = "";
  events.addEventListener("trouble", (event) => { trouble.textContent = JSON.parse(event.data).error; });
  events.addEventListener("error", () => { trouble.textContent = "the server of this page does not answer"; });
  events.addEventListener("answer", (event) => {
    const found = JSON.parse(event.data), text = JSON.stringify(found.graph);
    // What has the focus is not replaced for nothing.
    trouble.textContent = found.trouble;
    if (found.graph && text !== last && !place.contains(document.activeElement)) { place.replaceChildren(drawGraph(found.graph)); last = text; }
    table.replaceChildren(fillTable(
      ["job", "state", "writes", "lag, events", "lag, time", "change a second", "cleared in", "watermark", "behind", "held", "dead letters", "remark"],
      found.jobs.map((job) => {
        const topic = make("td"), note = (job.failure && job.failure.what) || job.waits_for || job.stands_still || "";
        topic.append(link(job.topic, "/messages", { topic: job.topic }));
        return [job.job, make("td", job.state, job.state.split(" ")[0]), topic, job.lag, span(job.lag_s), job.lag_change, span(job.cleared_in_s),
          job.watermark, span(job.watermark_delay_s), job.held, job.unreadable, note];
      })));
  });
}
