// Fetches status.json every second; rates and latencies cover the time between two responses. Texts that a
// peer may have chosen are inserted as text, never as markup.
"use strict";

const EVERY_MS = 1000;
let former = null; // the previous response, for rates
let paused = false;
let timer = 0;

const at = (id) => document.getElementById(id);

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.map((child) => (child instanceof Node ? child : String(child ?? ""))));
  return element;
}

function drawn(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

// A value is text, or {text, mood} with mood good, warn or bad, or {progress: 0 … 1}, or an element.
function cell(value, number) {
  const td = make("td", number ? { class: "number" } : {});
  if (value instanceof Node) td.append(value);
  else if (value && typeof value === "object" && "progress" in value) {
    const percent = Math.round(100 * value.progress);
    td.append(make("progress", { max: 1, value: value.progress, "aria-label": `${percent} percent` }), ` ${percent} %`);
  } else if (value && typeof value === "object") td.append(make("span", { class: value.mood || "" }, value.text));
  else td.append(String(value ?? ""));
  return td;
}

function table(caption, columns, rows, numbers = []) {
  const head = make("thead", {}, make("tr", {}, ...columns.map((name, place) =>
    make("th", { scope: "col", ...(numbers.includes(place) ? { class: "number" } : {}) }, name))));
  const body = make("tbody", {}, ...rows.map((row) =>
    make("tr", {}, ...row.map((value, place) => cell(value, numbers.includes(place))))));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, make("table", {}, head, body));
}

function fieldTable(caption, fields) {
  const body = make("tbody", {}, ...Object.entries(fields).map(([name, value]) =>
    make("tr", {}, make("th", { scope: "row" }, name), cell(value))));
  return make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, make("table", {}, body));
}

function fill(id, ...children) {
  const place = at(id);
  const open = new Set([...place.querySelectorAll("details[open]")].map((one) => one.dataset.key));
  const focused = document.activeElement?.closest(`#${id} [aria-label]`)?.getAttribute("aria-label");
  place.replaceChildren(...children);
  for (const one of place.querySelectorAll("details")) one.open = open.has(one.dataset.key);
  if (focused) [...place.querySelectorAll("[aria-label]")].find((one) => one.getAttribute("aria-label") === focused)?.focus();
}

const empty = (text) => make("p", { class: "empty" }, text);

function scaled(value, units, step = 1000) {
  let place = 0;
  while (value >= step && place < units.length - 1) { value /= step; place += 1; }
  return `${value >= 100 || Number.isInteger(value) ? Math.round(value) : value.toPrecision(3)} ${units[place]}`.trim();
}
const rate = (value) => (value ? scaled(value, ["", "K", "M", "G"]) + "/s" : "0");
const bytes = (value) => scaled(value, ["B", "KB", "MB", "GB", "TB"]);
const time = (ns) => (ns === null ? "–" : scaled(ns, ["ns", "µs", "ms", "s"]));
function age(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.floor(seconds / 3600)} h` : `${Math.floor(seconds / 86400)} d`;
}

function perSecond(now, before, name, seconds) {
  return before && seconds > 0 ? Math.max(0, ((now[name] || 0) - (before[name] || 0)) / seconds) : 0;
}

function wires(status, before, seconds) {
  const links = {};
  for (const session of status.sessions) if (session.wire) links[session.wire] = (links[session.wire] || 0) + 1;
  const rows = Object.entries(status.wires).map(([wire, state]) => {
    const now = status.totals[wire] || {}, then = before?.totals[wire];
    const of = (name) => perSecond(now, then, name, seconds);
    const errors = now.completion_errors || 0;
    return [
      wire, state.open ? { text: "open", mood: "good" } : { text: state.reason || "not open", mood: "warn" }, links[wire] || 0,
      rate(of("send_ops")), rate(of("recv_ops")), rate(of("read_ops")), rate(of("write_ops")),
      bytes(["send_bytes", "recv_bytes", "read_bytes", "write_bytes"].reduce((sum, name) => sum + of(name), 0)) + "/s",
      { text: errors, mood: errors ? "bad" : "" }, now.replayed_messages || 0,
    ];
  });
  fill("wires-body", table("Wires", ["wire", "state", "links", "send", "receive", "read", "write", "bytes", "errors", "replayed"],
    rows, [2, 3, 4, 5, 6, 7, 8, 9]));
}

// Returns the bucket counts since the previous response; all of them if there were none since.
function bucketsSince(now, then) {
  if (!then) return [now.buckets, "count since start"];
  const past = new Map(then.buckets);
  const since = now.buckets.map(([bound, count]) => [bound, count - (past.get(bound) || 0)]).filter(([, count]) => count > 0);
  return since.length ? [since, "count"] : [now.buckets, "count since start"];
}

function quantile(buckets, share) {
  const all = buckets.reduce((sum, [, count]) => sum + count, 0);
  let seen = 0;
  for (const [bound, count] of buckets) { seen += count; if (seen >= share * all) return bound; }
  return null;
}

function histogram(buckets, title) {
  const doublings = new Map();
  for (const [bound, count] of buckets) {
    const power = Math.ceil(Math.log2(bound));
    doublings.set(power, (doublings.get(power) || 0) + count);
  }
  const low = Math.min(...doublings.keys()) - 1, high = Math.max(...doublings.keys(), low + 8);
  const most = Math.max(...doublings.values()), width = 200 / (high - low + 1);
  const svg = drawn("svg", { viewBox: "0 0 200 62", preserveAspectRatio: "none", role: "img", "aria-label": title });
  svg.append(drawn("line", { x1: 0, x2: 200, y1: 50, y2: 50 }));
  for (let power = low; power <= high; power += 1) {
    const count = doublings.get(power) || 0, height = count ? Math.max(1, 46 * count / most) : 0;
    svg.append(drawn("rect", { x: (power - low) * width + 1, y: 50 - height, width: Math.max(1, width - 2), height }));
  }
  svg.append(drawn("text", { x: 1, y: 60 }, time(2 ** low)), drawn("text", { x: 199, y: 60, "text-anchor": "end" }, time(2 ** high)));
  return svg;
}

function latency(status, before) {
  const cards = [];
  for (const [wire, figures] of Object.entries(status.totals)) {
    for (const [operation, times] of Object.entries(figures.latency || {})) {
      const [buckets, label] = bucketsSince(times, before?.totals[wire]?.latency?.[operation]);
      const count = buckets.reduce((sum, [, one]) => sum + one, 0), p50 = quantile(buckets, 0.5), p99 = quantile(buckets, 0.99);
      const term = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
      cards.push(make("article", { class: "card" }, make("h3", {}, `${operation} over ${wire}`),
        make("dl", {}, term("p50", time(p50)), term("p99", time(p99)), term(label, `${scaled(count, ["", "K", "M"])}`)),
        histogram(buckets, `${operation} over ${wire}: p50 ${time(p50)}, p99 ${time(p99)}`)));
    }
  }
  fill("latency-body", ...(cards.length ? cards : [empty("This node has not completed a call, read or write yet.")]));
}

function sessions(status, before, seconds) {
  const past = new Map((before?.sessions || []).map((session) => [session.id, session]));
  const work = (session) => Object.values(session?.wires || {}).reduce((sum, one) => sum + one.send_ops + one.recv_ops + one.read_ops + one.write_ops, 0);
  const moods = { connected: "good", disconnected: "warn", unavailable: "bad", failed: "bad" };
  const rows = status.sessions.map((session) => [
    session.peer_name, session.peer, session.principal, { text: session.state, mood: moods[session.state] || "" }, session.wire || "–", session.reason,
    age(session.age_s), past.has(session.id) ? rate(Math.max(0, (work(session) - work(past.get(session.id))) / seconds)) : "–",
  ]);
  const more = status.sessions_open - status.sessions.length;
  fill("sessions-body", rows.length
    ? table("Sessions", ["peer", "address", "principal", "state", "wire", "reason", "age", "operations"], rows, [6, 7])
    : empty("No session is open."), ...(more > 0 ? [empty(`and ${more} less active sessions`)] : []));
}

function panels(found) {
  fill("panels", ...found.map((panel, place) => {
    const parts = [];
    if (panel.fields) parts.push(fieldTable(panel.title, panel.fields));
    if (panel.columns) parts.push(panel.rows.length ? table(panel.title, panel.columns, panel.rows) : empty(panel.empty || "Nothing yet."));
    if (panel.failure) parts.push(make("p", { class: "bad" }, panel.failure));
    return make("section", { "aria-labelledby": `panel-${place}` }, make("h2", { id: `panel-${place}` }, panel.title), ...parts);
  }));
}

function errors(found) {
  const rows = found.map((error) => {
    const why = make("details", { "data-key": error.number }, make("summary", {}, error.explanation ? error.explanation.what : error.what));
    if (error.explanation) {
      why.append(make("ol", {}, ...error.explanation.causes.map((cause) => make("li", {}, cause))),
        make("p", {}, make("strong", {}, "Remedy: "), error.explanation.remedy));
    }
    why.append(make("p", { class: "hint" }, Object.entries(error.fields).map(([name, value]) => `${name}=${value}`).join("  ")));
    return [new Date(error.time * 1000).toLocaleTimeString("en-GB"), { text: error.event, mood: error.level === "error" ? "bad" : "warn" },
      error.fields.peer_name || error.fields.peer || "", error.fields.wire || "", why];
  });
  fill("errors-body", rows.length ? table("Recent errors", ["time", "event", "peer", "wire", "meaning"], rows) : empty("No errors since the node started."));
}

function showState(state, text) {
  at("state").dataset.state = state;
  if (at("state").textContent !== text) at("state").textContent = text;
}

async function look() {
  clearTimeout(timer);
  if (!document.hidden) {
    try {
      const answer = await fetch("status.json", { cache: "no-store" });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      const now = await answer.json();
      const seconds = former ? now.status.uptime_s - former.uptime_s : 0;
      if (seconds < 0) former = null; // the node has restarted
      document.title = `${now.status.node} · Verbena`;
      at("node").textContent = now.status.node;
      at("about").textContent = `Verbena ${now.version}, up ${age(now.status.uptime_s)}, sessions ${now.status.sessions_open}, regions ${now.status.regions}`;
      wires(now.status, former, seconds);
      latency(now.status, former);
      sessions(now.status, former, seconds);
      panels(now.panels);
      errors(now.errors);
      former = now.status;
      showState("live", "live");
      document.documentElement.dataset.ready = "yes";
    } catch (problem) {
      showState("gone", `no answer: ${problem.message}`);
    }
  }
  if (!paused) timer = setTimeout(look, EVERY_MS);
}

function togglePause() {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", paused);
  if (paused) { clearTimeout(timer); showState("paused", "paused"); } else look();
}

at("pause").addEventListener("click", togglePause);
document.addEventListener("keydown", (event) => {
  if (event.key === "p" && !event.ctrlKey && !event.metaKey && !event.altKey) togglePause();
});
document.addEventListener("visibilitychange", () => { if (!document.hidden && !paused) look(); });
look();
