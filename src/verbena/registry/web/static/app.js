// The registry's web page. Text from clients goes into text nodes, never into markup.
"use strict";

const TYPES = [
  "application/vnd.oci.image.manifest.v1+json", "application/vnd.oci.image.index.v1+json",
  "application/vnd.docker.distribution.manifest.v2+json",
  "application/vnd.docker.distribution.manifest.list.v2+json",
].join(", ");
const PAGE = 1000, REFRESH_MS = 1000;
const main = document.getElementById("main"), filter = document.getElementById("filter");
const list = document.getElementById("repositories"), login = document.getElementById("login");
let authorization = "", names = [], shown = 0, before = null;

class Problem extends Error {}

// Creates an element: make("td", {class: "number"}, "text", otherElement).
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

function table(head, rows, empty) {
  if (!rows.length) return make("div", {class: "sheet"}, make("p", {class: "empty"}, empty));
  const cells = head.map(([text, kind]) => make("th", {scope: "col", class: kind}, text));
  return make("div", {class: "sheet"},
    make("table", {}, make("thead", {}, make("tr", {}, ...cells)), make("tbody", {}, ...rows)));
}

function row(...cells) {
  return make("tr", {}, ...cells.map((cell) => cell instanceof Element && cell.tagName === "TD" ? cell : make("td", {}, cell)));
}

const number = (text) => make("td", {class: "number"}, text);

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (count >= 1024 && unit < units.length - 1) { count /= 1024; unit += 1; }
  return `${unit && count < 100 ? count.toFixed(1) : Math.round(count)} ${units[unit]}`;
}

const short = (digest) => make("span", {class: "digest", title: digest}, digest.replace(/^(\w+:)(.{12}).*/, "$1$2…"));
const kind = (type) => (type || "").replace(/^application\/vnd\./, "");
const path = (name, reference) => `#/${name}${reference ? `@${encodeURIComponent(reference)}` : ""}`;

async function get(url, accept = "application/json") {
  const headers = {Accept: accept, ...(authorization && {Authorization: authorization})};
  const response = await fetch(url, {headers, credentials: "omit"});
  if (response.status === 401 && !authorization) { await ask(); return get(url, accept); }
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Problem(body.errors?.[0]?.message || `the registry returned status ${response.status}`);
  }
  return response;
}

let asking = null;
// One log-in dialog for all requests that need it.
function ask() {
  asking ??= new Promise((resolve) => {
    login.showModal();
    login.querySelector("form").addEventListener("submit", async (event) => {
      event.preventDefault();
      const pair = new TextEncoder().encode(`${login.querySelector("#user").value}:${login.querySelector("#password").value}`);
      authorization = `Basic ${btoa(String.fromCharCode(...pair))}`;
      const response = await fetch("/v2/", {headers: {Authorization: authorization}, credentials: "omit"});
      if (response.ok) { login.close(); resolve(); asking = null; return; }
      authorization = "";
      document.getElementById("login-problem").textContent = "wrong user name or password";
    });
  });
  return asking;
}
login.addEventListener("cancel", (event) => event.preventDefault());

async function pages(url, field) {
  const found = [];
  for (let last = ""; ;) {
    const page = (await (await get(`${url}?n=${PAGE}&last=${encodeURIComponent(last)}`)).json())[field] || [];
    found.push(...page);
    if (page.length < PAGE) return found;
    last = page[page.length - 1];
  }
}

// The list of repositories.

async function listRepositories() {
  names = await pages("/v2/_catalog", "repositories");
  showRepositories();
}

function showRepositories() {
  const [current] = where();
  const wanted = names.filter((name) => name.includes(filter.value.trim().toLowerCase()));
  list.replaceChildren(...wanted.map((name) =>
    make("li", {}, make("a", {href: path(name), "aria-current": name === current ? "page" : null}, name))));
  if (!wanted.length) list.append(make("li", {class: "faint"}, names.length ? "no matches" : "no repositories yet"));
  list.querySelector("[aria-current]")?.scrollIntoView({block: "nearest"});
}

// The repository, and the tag or digest, in the address.
function where() {
  const [name, reference] = location.hash.replace(/^#\/?/, "").split("@");
  return [decodeURIComponent(name || ""), decodeURIComponent(reference || "")];
}

async function show() {
  const turn = ++shown;
  const [name, reference] = where();
  document.title = [reference, name, "Verbena registry"].filter(Boolean).join(" · ");
  showRepositories();
  let content;
  try {
    content = !name ? await overview() : reference ? await manifest(name, reference) : await repository(name);
  } catch (error) {
    content = [make("p", {class: "problem", role: "alert"}, error instanceof Problem ? error.message : `This page failed: ${error}`)];
  }
  if (turn === shown) main.replaceChildren(...content);
}

async function repository(name) {
  const tags = await pages(`/v2/${name}/tags/list`, "tags");
  const rows = await Promise.all(tags.slice(0, 200).map(async (tag) => {
    const found = await read(name, tag).catch(() => null);
    return row(make("a", {href: path(name, tag)}, tag), found ? short(found.digest) : "–",
      make("span", {class: "faint"}, found ? describe(found.document) : ""),
      number(found ? bytes(total(found.document)) : "–"));
  }));
  return [make("h2", {}, name),
    table([["tag"], ["digest"], ["content"], ["size", "number"]], rows, "No tags."),
    tags.length > 200 ? make("p", {class: "faint"}, `and ${tags.length - 200} more`) : null].filter(Boolean);
}

async function read(name, reference) {
  const response = await get(`/v2/${name}/manifests/${reference}`, TYPES);
  const type = response.headers.get("Content-Type");
  return {document: await response.json(), digest: response.headers.get("Docker-Content-Digest"), type};
}

const total = (document) => [document.config, ...(document.layers || []), ...(document.manifests || [])]
  .reduce((sum, part) => sum + (part?.size || 0), 0);

function describe(document) {
  if (document.manifests) {
    return document.manifests.map((part) => platform(part)).filter(Boolean).join(", ") || `index of ${document.manifests.length}`;
  }
  const count = (document.layers || []).length;
  return `${count} ${count === 1 ? "layer" : "layers"}`;
}

const platform = ({platform: at}) => at ? [at.os, at.architecture, at.variant].filter(Boolean).join("/") : "";

async function manifest(name, reference) {
  const {document, digest, type} = await read(name, reference);
  const facts = [["digest", make("code", {}, digest)], ["type", kind(document.mediaType || type)], ["size", bytes(total(document))],
    ...Object.entries(document.annotations || {}).map(([key, value]) => [key, String(value)])];
  const content = [make("h2", {}, make("a", {href: path(name)}, name), ` ${reference.includes(":") ? "" : reference}`),
    make("div", {class: "sheet"}, make("dl", {}, ...facts.flatMap(([key, value]) => [make("dt", {}, key), make("dd", {}, value)])))];
  if (document.manifests) {
    const rows = document.manifests.map((part) => row(make("a", {href: path(name, part.digest)}, platform(part) || "manifest"),
      short(part.digest), make("span", {class: "faint"}, kind(part.mediaType)), number(bytes(part.size || 0))));
    return [...content, make("h3", {}, "Manifests"), table([["platform"], ["digest"], ["type"], ["size", "number"]], rows, "None.")];
  }
  const parts = [...(document.config ? [{...document.config, role: "config"}] : []),
    ...(document.layers || []).map((layer, index) => ({...layer, role: `layer ${index + 1}`}))];
  const places = await find(name, parts.map((part) => part.digest));
  const largest = Math.max(1, ...parts.map((part) => part.size || 0));
  const rows = parts.map((part) => row(part.role, short(part.digest), make("span", {class: "faint"}, kind(part.mediaType)),
    make("meter", {min: 0, max: largest, value: part.size || 0, "aria-label": `${bytes(part.size || 0)} of the largest ${bytes(largest)}`}),
    number(bytes(part.size || 0)), chips(places[part.digest] || [], part.size || 0)));
  return [...content, make("h3", {}, "Blobs"),
    table([["part"], ["digest"], ["type"], [""], ["size", "number"], ["location"]], rows, "None.")];
}

async function find(name, digests) {
  const wanted = [...new Set(digests)].slice(0, 128).map((digest) => `&digest=${encodeURIComponent(digest)}`).join("");
  if (!wanted) return {};
  return (await (await get(`/ui/where.json?repository=${encodeURIComponent(name)}${wanted}`)).json()).blobs;
}

function chips(places, size) {
  if (!places.length) return make("span", {class: "bad"}, "missing");
  return make("span", {class: "chips"}, ...places.map((place) => make("span", {class: `chip${place.whole ? "" : " part"}`},
    place.whole ? place.node : `${place.node}: ${Math.floor(100 * place.held / Math.max(1, size))} %`)));
}

// The start page: this node, its peers, transfers.

async function overview() {
  const state = await (await get("/ui/node.json")).json();
  showTotals(state.stored);
  const content = [make("h2", {}, state.node ? state.node.name : "This registry")];
  if (!state.node) {
    return [...content, make("p", {class: "faint"}, "No other nodes and no upstream registry. Add nodes with ",
      make("code", {}, "verbena registry --rdma-enabled --peers …"), ".")];
  }
  const wires = state.node.wires.join(", ");
  content.push(make("p", {class: "faint"}, [state.node.address && `nodes at ${state.node.address} on ${wires}`,
    `${state.node.fetched} blobs fetched`, `${bytes(state.node.sent_bytes)} sent to other nodes`,
    state.node.failed && `${state.node.failed} failed`, state.node.replicating && `${state.node.replicating} replicating`]
    .filter(Boolean).join(" · ")));
  content.push(make("h3", {}, "Transfers"), transfers(state));
  content.push(make("h3", {}, "Nodes"), peers(state.peers));
  if (state.upstreams.length) {
    const rows = state.upstreams.map((upstream) => row(upstream.url, number(String(upstream.failures))));
    content.push(make("h3", {}, "Upstream"), table([["registry"], ["failures", "number"]], rows, ""));
  }
  before = state;
  return content;
}

function transfers(state) {
  const rows = state.transfers.map((transfer) => {
    const former = before?.transfers?.find((other) => other.digest === transfer.digest && other.begun === transfer.begun);
    const seconds = state.time - (former ? before.time : transfer.begun);
    const speed = seconds > 0 ? (transfer.received - (former ? former.received : 0)) / seconds : 0;
    const from = transfer.sources.map((source) => make("span", {class: "chip"}, `${source.name} over ${source.wire || "HTTP"}: ${bytes(source.received)}`));
    return row(short(transfer.digest), transfer.repositories.join(", "),
      make("td", {}, make("progress", {max: transfer.size, value: transfer.received, "aria-label": "received"}),
        make("span", {class: "faint"}, `${bytes(transfer.received)} of ${bytes(transfer.size)}`)),
      number(transfer.state === "receiving" ? `${bytes(speed)}/s` : transfer.state), make("span", {class: "chips"}, ...from));
  });
  return table([["blob"], ["repository"], ["received"], ["speed", "number"], ["source"]], rows, "No transfers.");
}

function peers(found) {
  const rows = found.map((peer) => row(peer.name, make("code", {}, peer.address),
    make("span", {class: peer.state === "connected" && !peer.avoided ? "good" : "bad", title: peer.why}, peer.avoided ? "avoided" : peer.state),
    peer.wire || "–", number(bytes(peer.received_bytes)), number(String(peer.stalls)), number(String(peer.corrupt_blobs))));
  return table([["node"], ["address"], ["state"], ["wire"], ["received", "number"], ["stalls", "number"], ["corrupt", "number"]],
    rows, "No other nodes.");
}

function showTotals(stored) {
  const many = (count, one, several) => `${count} ${count === 1 ? one : several}`;
  document.getElementById("totals").textContent = [many(stored.repositories, "repository", "repositories"),
    many(stored.tags, "tag", "tags"), many(stored.blobs, "blob", "blobs"), bytes(stored.blob_bytes)].join(" · ");
}

// Keys: "/" focuses the filter, arrows move through a list, Escape clears the filter.

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || login.open) return;
  const typing = document.activeElement === filter;
  if (event.key === "/" && !typing) { event.preventDefault(); filter.select(); filter.focus(); return; }
  if (event.key === "Escape" && typing) { filter.value = ""; showRepositories(); main.focus(); return; }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  const area = typing || list.contains(document.activeElement) ? list : main.contains(document.activeElement) ? main : null;
  const links = area ? [...area.querySelectorAll("a")] : [];
  if (!links.length) return;
  const now = links.indexOf(document.activeElement);
  const next = now + (event.key === "ArrowDown" ? 1 : -1);
  event.preventDefault();
  if (next < 0 && area === list) filter.focus(); else links[Math.min(Math.max(next, 0), links.length - 1)].focus();
});

filter.addEventListener("input", showRepositories);
window.addEventListener("hashchange", async () => { await show(); main.focus(); });

// Light or dark: follows the system until the user chooses.

const theme = document.getElementById("theme"), dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
function nameTheme() { theme.textContent = isDark() ? "Light" : "Dark"; }
theme.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  localStorage.setItem("theme", document.documentElement.dataset.theme);
  nameTheme();
});
dark.addEventListener("change", nameTheme);
if (localStorage.getItem("theme")) document.documentElement.dataset.theme = localStorage.getItem("theme");
nameTheme();

async function refresh() {
  if (!document.hidden && !login.open) {
    try {
      if (!where()[0] && !main.querySelector(":focus")) await show();
    } catch { /* the next turn retries */ }
  }
  setTimeout(refresh, REFRESH_MS);
}

async function start() {
  await Promise.all([listRepositories().catch(() => {}), show()]);
  if (where()[0]) get("/ui/node.json").then((answer) => answer.json()).then((state) => showTotals(state.stored)).catch(() => {});
  document.documentElement.dataset.ready = "yes";
  setTimeout(refresh, REFRESH_MS);
}
start();
