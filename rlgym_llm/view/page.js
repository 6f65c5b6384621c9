"use strict";
// Text reaches the page through textContent alone: what rows hold is shown, never run.

const $ = (id) => document.getElementById(id);
const state = { about: null, rows: [], at: 0, next: null, current: null, asked: 0, opened: 0 };

function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(props)) {
    if (key === "on") for (const [event, fn] of Object.entries(value)) node.addEventListener(event, fn);
    else if (key === "class") node.className = value;
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

const whole = (value) => value.toLocaleString("en-US");
function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  const text = Math.abs(value) >= 1e6 || (value !== 0 && Math.abs(value) < 1e-4)
    ? value.toExponential(2) : String(Number(value.toPrecision(digits)));
  return text.replace("-", "−");
}
const words = (status) => status.replaceAll("_", " ");
const tone = (value) => (value === null || value === undefined ? "soft" : value > 0 ? "good" : value < 0 ? "bad" : "");

async function ask(question, fields = {}) {
  const reply = await fetch(`api/${question}?${new URLSearchParams(fields)}`);
  const data = await reply.json();
  if (!reply.ok) throw new Error(data.error);
  return data;
}

// ---- the list

function query() {
  const given = {};
  for (const [key, value] of new FormData($("filters"))) if (value.trim()) given[key] = value.trim();
  if (given.sort === "row") delete given.sort;
  return given;
}

async function load(from = 0) {
  const asked = ++state.asked;
  if (from === 0) { state.rows = []; $("rows").replaceChildren(); }
  $("more").disabled = true;
  let start = from, wanted = 50;
  try {
    for (;;) {
      const page = await ask("rows", { ...query(), start });
      if (asked !== state.asked) return;
      show(page);
      wanted -= page.rows.length;
      start = page.next;
      if (start === null || wanted <= 0) break;
      $("count").textContent = `searched ${whole(start)} of ${whole(page.num_fitting)} rows …`;
    }
  } catch (error) {
    if (asked === state.asked) $("count").replaceChildren(el("span", { class: "bad" }, error.message));
  } finally {
    if (asked === state.asked) $("more").disabled = false;
  }
}

function show(page) {
  state.rows.push(...page.rows);
  state.next = page.next;
  state.at = page.at;
  $("rows").append(...page.rows.map(item));
  const searched = "text" in query();
  const fitting = searched ? whole(state.rows.length) + (page.next === null ? "" : "+") : whole(page.num_fitting);
  $("count").textContent = page.num_rows === 0 ? "no rows" : `${fitting} of ${whole(page.num_rows)} rows` +
    (page.is_done ? "" : " read so far");
  $("more").hidden = page.next === null;
}

function item(row) {
  const badges = [];
  if (row.status !== "scored") badges.push(el("span", { class: "badge bad" }, words(row.status)));
  else if (row.has_failed) badges.push(el("span", { class: "badge bad" }, "component failed"));
  const button = el("button", { type: "button", "data-row": row.row, on: { click: () => go(row.row) } },
    el("span", { class: `reward ${tone(row.reward)}` }, number(row.reward)),
    el("span", { class: "where" }, `row ${whole(row.row)}`),
    el("span", { class: "snippet" }, ...badges, row.snippet || el("i", { class: "soft" }, "(empty)")));
  mark(button);
  return el("li", {}, button);
}

function mark(button) {
  if (Number(button.dataset.row) === state.current) button.setAttribute("aria-current", "true");
  else button.removeAttribute("aria-current");
}

// ---- one row

const go = (row) => { location.hash = `row=${row}`; };

async function open() {
  const found = /^#row=(\d+)$/.exec(location.hash);
  const opened = ++state.opened;
  state.current = found ? Number(found[1]) : null;
  for (const button of $("rows").querySelectorAll("button")) mark(button);
  document.body.classList.toggle("reading", found !== null);
  $("detail").hidden = !found;
  if (!found) return;
  try {
    const row = await ask("row", { row: state.current });
    if (opened !== state.opened) return;
    const group = el("div", { class: "siblings" });
    $("detail").replaceChildren(...detail(row), group);
    $("detail").scrollTop = 0;
    if (document.body.clientWidth <= 760) window.scrollTo(0, 0);
    const siblings = await ask("siblings", { row: state.current });
    if (opened === state.opened) group.replaceChildren(...sideBySide(siblings, state.current));
  } catch (error) {
    if (opened === state.opened) $("detail").replaceChildren(backButton(), el("p", { class: "bad" }, error.message));
  }
}

const backButton = () => el("button", { type: "button", class: "back", on: { click: () => { history.replaceState(null, "", "#"); open(); } } }, "← Rows");

function step(by) {
  const place = state.rows.findIndex((row) => row.row === state.current);
  const next = state.rows[place < 0 ? 0 : place + by];
  if (!next) return;
  go(next.row);
  $("rows").querySelector(`[data-row="${next.row}"]`)?.scrollIntoView({ block: "nearest" });
}

function detail(row) {
  const nav = el("nav", {}, backButton(),
    el("button", { type: "button", title: "key k", on: { click: () => step(-1) } }, "↑ Previous"),
    el("button", { type: "button", title: "key j", on: { click: () => step(1) } }, "↓ Next"));
  const head = el("div", { class: "head" },
    el("h2", {}, `Row ${whole(row.row)} `, el("small", { class: "soft" }, `line ${whole(row.line)}` + (row.id ? ` · ${row.id}` : ""))), nav);
  if (row.text) return [head, el("p", { class: "bad" }, `bad line: ${row.error}`), el("pre", {}, ...cut(row.text))];
  const verdict = el("p", { class: "verdict" }, "reward ", el("b", { class: tone(row.reward) }, number(row.reward, 6)), " ",
    el("span", { class: `badge ${row.status === "scored" ? "soft" : "bad"}` }, words(row.status)),
    row.label === null ? null : ` labelled ${row.label ? "right" : "wrong"}`);
  return [head, verdict, row.error ? el("p", { class: "bad" }, row.error) : null,
    row.components.length ? components(row.components) : null,
    Object.keys(row.spans).length ? coloured(row.spans) : null,
    ...row.parts.map((part) => el("div", { class: part.is_sampled ? "part sampled" : "part" }, el("h3", {}, part.role), el("pre", { dir: "auto" }, ...cut(part)))),
    row.parts.some((part) => part.num_left_out) ? wholeButton(row.row) : null,
    row.answer ? el("div", { class: "part" }, el("h3", {}, "answer"), el("pre", { dir: "auto" }, ...cut(row.answer))) : null,
    Object.keys(row.others).length ? el("details", {}, el("summary", {}, "Other columns"), pairs(row.others)) : null,
  ].filter((node) => node !== null);
}

function wholeButton(row) {
  return el("button", { type: "button", on: { click: async (event) => {
    event.target.disabled = true;
    const full = await ask("row", { row, whole: 1 });
    if (full.row === state.current) $("detail").replaceChildren(...detail(full), ...$("detail").querySelectorAll(":scope > .siblings"));
  } } }, "Show the whole text");
}

function cut(text) {
  const left = text.num_left_out && el("span", { class: "left-out" }, `${whole(text.num_left_out)} characters left out`);
  return left ? [text.head, left, text.tail] : [text.head];
}

function components(parts) {
  const isChanged = parts.some((part) => part.transformed !== part.raw);
  const columns = ["component", "raw", "weight", ...(isChanged ? ["transformed"] : []), "contribution", "status"];
  const bodies = parts.map((part) => el("tbody", {},
    el("tr", {}, el("th", { scope: "row" }, part.name),
      el("td", {}, number(part.raw)), el("td", {}, number(part.weight)),
      isChanged ? el("td", {}, number(part.transformed)) : null,
      el("td", { class: tone(part.contribution) }, number(part.contribution)),
      el("td", { class: part.error || part.status === "error" || part.status === "timeout" ? "bad" : "" }, words(part.status))),
    part.error || Object.keys(part.info).length ? el("tr", { class: "info-row" }, el("td", { class: "text", colspan: columns.length },
      part.error ? el("p", { class: "bad" }, part.error) : null, pairs(part.info))) : null));
  return el("div", { class: "scrolls" }, el("table", { id: "components" },
    el("thead", {}, el("tr", {}, ...columns.map((name) => el("th", { scope: "col" }, name)))), ...bodies));
}

function pairs(data) {
  return el("dl", { class: "info" }, ...Object.entries(data).filter(([, value]) => value !== "null")
    .map(([key, value]) => el("div", {}, el("dt", {}, key), el("dd", {}, value))));
}

function coloured(ways) {
  const names = Object.keys(ways);
  const body = el("pre", { id: "coloured", dir: "auto" });
  const legend = el("p", { class: "legend" });
  const buttons = names.map((name) => el("button", { type: "button", on: { click: () => pick(name) } }, name));
  function pick(name) {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button.textContent === name));
    const { spans, num_left_out: left } = ways[name];
    const most = Math.max(...spans.map(([, value]) => Math.abs(value ?? 0)));
    body.replaceChildren(...spans.map(([text, value]) => span(text, value, most)),
      left ? el("span", { class: "left-out" }, `${whole(left)} characters left out`) : "");
    legend.replaceChildren(number(-most), el("i"), number(most), " · point at the text for its value; ■ is the end of text");
  }
  pick(names[0]);
  return el("div", { class: "block" }, el("h3", {}, "What the text earned"), el("div", { class: "ways", role: "group", "aria-label": "Coloured by" }, ...buttons), body, legend);
}

function span(text, value, most) {
  if (value === null || (value === 0 && text === "")) return document.createTextNode(text);
  const node = el("span", { class: "earned", title: number(value, 6), "data-value": value }, text === "" ? "■" : text);
  // A style that the script sets is no inline style to the page's security policy.
  const share = most ? Math.abs(value) / most : 0;
  if (share) node.style.backgroundColor = `rgb(var(--${value > 0 ? "plus" : "minus"}) / ${(0.12 + 0.63 * share).toFixed(3)})`;
  return node;
}

function sideBySide(group, current) {
  if (group.num_siblings < 2) return [];
  const cards = group.rows.map((row) => {
    const said = row.text ?? row.parts.filter((part) => part.is_sampled).at(-1) ?? { head: "" };
    return el("article", { class: row.row === current ? "sibling this" : "sibling" },
      el("header", {},
        el("button", { type: "button", disabled: row.row === current, on: { click: () => go(row.row) } }, `row ${whole(row.row)}`),
        el("b", { class: tone(row.reward) }, row.reward === null ? words(row.status) : number(row.reward))),
      el("ul", {}, ...(row.components ?? []).map((part) => el("li", {}, `${part.name} ${number(part.raw)}`))),
      el("pre", { dir: "auto" }, ...cut(said)));
  });
  const shown = group.rows.length < group.num_siblings ? `${group.rows.length} of ${whole(group.num_siblings)}` : group.num_siblings;
  return [el("h3", {}, `Siblings: ${shown} rows of this group`), el("div", { tabindex: "0", role: "group", "aria-label": "Siblings side by side" }, ...cards)];
}

// ---- the page

function describe(about) {
  const first = state.about === null;
  state.about = about;
  document.title = `${about.name} · rlgym view`;
  $("name").textContent = about.name;
  $("name").title = about.path;
  const counts = Object.entries(about.statuses).map(([status, count]) => `${whole(count)} ${words(status)}`);
  $("facts").textContent = about.error ? `reading ended: ${about.error}` :
    `${whole(about.num_rows)} rows${about.is_done ? "" : " so far"}: ${counts.join(", ")}`;
  $("progress").hidden = about.is_done;
  $("progress").value = about.part_read;
  if (first) $("component").append(...about.components.map((name) => el("option", { value: name }, name)));
  const chosen = $("status").value;
  $("status").replaceChildren(el("option", { value: "" }, "any"),
    ...Object.entries(about.statuses).map(([name, count]) => el("option", { value: name }, `${words(name)} (${whole(count)})`)));
  $("status").value = chosen;
}

async function watch() {
  for (;;) {
    let about;
    try { about = await ask("about"); } catch { $("facts").textContent = "rlgym view has ended"; return; }
    const grew = state.about !== null && about.num_rows !== state.about.num_rows;
    describe(about);
    if (state.asked === 0) load();
    else if (grew && state.next === null && !("sort" in query())) load(state.at); // the end of the file has moved
    else if (grew && about.is_done && "sort" in query() && state.rows.length <= 50) load();
    if (about.is_done) return;
    await new Promise((done) => setTimeout(done, 700));
  }
}

function applied() {
  const active = Object.keys(query()).length;
  $("active").hidden = active === 0;
  $("active").textContent = active;
  load();
}

$("filters").addEventListener("submit", (event) => { event.preventDefault(); applied(); });
$("filters").addEventListener("reset", () => setTimeout(applied));
$("filters").addEventListener("change", applied);
$("more").addEventListener("click", () => load(state.next));
window.addEventListener("hashchange", open);
document.addEventListener("keydown", (event) => {
  if (event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j") step(1);
  else if (event.key === "k") step(-1);
  else if (event.key === "/") { event.preventDefault(); $("filter-box").open = true; $("text").focus(); }
});
if (window.matchMedia("(min-width: 761px)").matches) $("filter-box").open = true;
watch();
open();
