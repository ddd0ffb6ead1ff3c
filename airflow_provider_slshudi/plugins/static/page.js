// Follows Airflow's colours, language and time zone, opens Airflow's own pages outside of the frame, sorts and searches
// tables, and shows what is new every ten seconds.
"use strict";

const words = JSON.parse(document.body.dataset.words || "{}");
const fill = (text, values) => (text || "").replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);

function airflowIsDark() {
  try {
    const shown = window.parent.document.documentElement.classList;
    if (shown.contains("dark")) return true;
    if (shown.contains("light")) return false;
  } catch { /* not in Airflow's frame */ }
  const chosen = kept("theme");
  if (chosen === "dark" || chosen === "light") return chosen === "dark";
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

// What Airflow's own pages keep in this browser.
function kept(name) {
  try {
    return window.localStorage.getItem(name)?.replace(/^"|"$/g, "");
  } catch { return null; /* storage is forbidden */ }
}

function followColours() {
  document.documentElement.dataset.theme = airflowIsDark() ? "dark" : "light";
}

// The server fills the pages in; it learns language and time zone by cookies.
function followReader() {
  if (document.body.dataset.zone === undefined) return;
  const language = (kept("i18nextLng") || navigator.language || "en").toLowerCase().startsWith("zh") ? "zh-CN" : "en";
  const zone = kept("timezone") || Intl.DateTimeFormat().resolvedOptions().timeZone || "UTC";
  if (language === document.documentElement.lang && zone === document.body.dataset.zone) return;
  if (busy()) return;
  const cookies = [`slshudi_language=${language}`, `slshudi_zone=${encodeURIComponent(zone)}`];
  if (cookies.every((cookie) => document.cookie.split("; ").includes(cookie))) return; // the server has no such zone
  for (const cookie of cookies) document.cookie = `${cookie}; path=${document.body.dataset.here || "/"}; max-age=31536000; SameSite=Lax`;
  if (cookies.every((cookie) => document.cookie.split("; ").includes(cookie))) location.reload();
}

// A frame of Airflow's may not move the page around it, but a link of that page may.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-top]");
  if (!link || window.parent === window || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const outside = window.parent.document.createElement("a");
  outside.href = link.href;
  window.parent.document.body.append(outside);
  outside.click();
  outside.remove();
});

// A form asks Airflow's own API, with the user's own rights: a run of a DAG, or its pause.
async function ask(form, method, path, body) {
  const said = form.querySelector("output");
  const buttons = [...form.querySelectorAll("button")];
  buttons.forEach((button) => { button.disabled = true; });
  said.textContent = "…";
  try {
    const answer = await fetch(`${document.body.dataset.airflow}/api/v2/dags/${encodeURIComponent(form.dataset.dag)}${path}`, {
      method, headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
    });
    const found = await answer.json().catch(() => ({}));
    if (!answer.ok) {
      const why = typeof found.detail === "string" ? found.detail : JSON.stringify(found.detail ?? "");
      said.textContent = fill(words.refused, { code: answer.status, why });
      return null;
    }
    return found;
  } catch (error) {
    said.textContent = fill(words.silent, { why: error.message });
    return null;
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

// The params of a run: what is filled in; a ticked box is true; ticked ranges become { shard: [begin, end] }.
function confOf(form, button) {
  const conf = {}, cursors = {};
  // A run takes one span of each shard: what lies unticked within it would be read, too.
  // The table may be sorted by something else.
  const ranges = [...form.querySelectorAll("[name=range]")].sort((one, other) => (BigInt(one.dataset.begin) < BigInt(other.dataset.begin) ? -1 : 1));
  for (const field of ranges.filter((one) => !one.checked)) {
    const same = ranges.filter((one) => one.dataset.shard === field.dataset.shard);
    const at = same.indexOf(field);
    if (same.slice(0, at).some((one) => one.checked) && same.slice(at).some((one) => one.checked)) {
      throw new Error(fill(words.gap, field.dataset));
    }
  }
  for (const { dataset: { shard, begin, end } } of ranges.filter((one) => one.checked)) {
    cursors[shard] = [cursors[shard]?.[0] ?? begin, end];
  }
  for (const field of form.elements) {
    if (!field.name || field.tagName === "BUTTON") continue;
    if (field.type === "checkbox") {
      if (field.checked && field.name !== "range") conf[field.name] = true;
    } else if (field.value) {
      conf[field.name] = field.value;
    }
  }
  if (Object.keys(cursors).length) conf.cursors = cursors;
  if (button && button.name) conf[button.name] = true;
  return conf;
}

document.addEventListener("submit", async (event) => {
  const form = event.target, said = form.querySelector("output");
  event.preventDefault();
  if (form.matches("form.trigger")) {
    let conf;
    try {
      conf = confOf(form, event.submitter);
    } catch (error) {
      said.textContent = error.message;
      return;
    }
    const run = await ask(form, "POST", "/dagRuns", { logical_date: null, conf });
    if (!run) return;
    const path = `${document.body.dataset.airflow}/api/v2/dags/${encodeURIComponent(run.dag_id)}`;
    const { is_paused: paused } = await fetch(path).then((answer) => (answer.ok ? answer.json() : {})).catch(() => ({}));
    const link = document.createElement("a");
    link.dataset.top = "";
    link.href = `${document.body.dataset.airflow}/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.dag_run_id)}`;
    link.textContent = run.dag_run_id;
    const begins = paused === undefined ? words.asked : paused ? fill(words.queued, { dag: run.dag_id }) : words.begun;
    said.replaceChildren(`${begins} `, link);
  } else if (form.matches("form.pause")) {
    const paused = event.submitter.value === "true";
    if (await ask(form, "PATCH", "?update_mask=is_paused", { is_paused: paused })) {
      said.textContent = paused ? words.paused : words.runs;
    }
  }
});

const outputs = () => [...document.querySelectorAll("output")];

// Whether somebody is at work on the page, or waits for an answer.
function busy() {
  const ticked = document.querySelector("input[type=checkbox]:checked:not([hidden])");
  const asking = outputs().some((said) => said.textContent === "…");
  return asking || ticked || document.activeElement?.matches("input, textarea, button, summary") || document.querySelector(".menu[open]") || window.getSelection().toString();
}

let served = document.querySelector("main")?.innerHTML;

async function refresh() {
  if (document.hidden || busy()) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer || answer.status === 401 || answer.status === 403) return;
  const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  // Somebody may have pressed a button meanwhile: its form would never show the answer, and the page would stand still.
  if (busy()) return;
  const shown = document.querySelector("main");
  if (found && shown && found.innerHTML !== served) {
    served = found.innerHTML;
    const at = document.activeElement && document.activeElement.getAttribute("href");
    const opened = Boolean(document.querySelector("details.more[open]"));
    const said = outputs().map((output) => [...output.childNodes]);
    shown.replaceChildren(...found.childNodes);
    if (outputs().length === said.length) outputs().forEach((output, at) => output.replaceChildren(...said[at]));
    document.querySelectorAll("details.more").forEach((more) => { more.open = opened; });
    lists();
    if (at) document.querySelector(`main a[href="${CSS.escape(at)}"]`)?.focus();
  }
}

// Tables: sorted by a click on a heading, searched, and shown in pages. What was chosen outlives a refresh.
const PAGE = 25;
const chosen = new Map();

function value(row, column) {
  const cell = row.cells[Math.min(column, row.cells.length - 1)];
  const text = cell.dataset.sort ?? cell.querySelector("time")?.dateTime ?? cell.textContent.trim();
  const number = Number(text.replaceAll(",", ""));
  return text === "" || text === "None" ? null : Number.isNaN(number) ? text : number;
}

function order(one, other) {
  if (one === null || other === null) return one === other ? 0 : one === null ? 1 : -1;
  if (typeof one === typeof other) return one < other ? -1 : one > other ? 1 : 0;
  return typeof one === "number" ? -1 : 1;
}

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

// Figures have spaces at which no line breaks, and joiners.
const plain = (text) => text.replaceAll("\u00a0", " ").replaceAll("\u2060", "").toLowerCase();

function list(table) {
  const name = table.dataset.list, rows = [...table.tBodies[0].rows], heads = [...table.tHead.rows[0].cells];
  const state = chosen.get(name) || { query: "", column: -1, down: false, page: 0 };
  chosen.set(name, state);
  const counted = element("span", {}), back = element("button", { type: "button", textContent: "‹", title: words.previous, ariaLabel: words.previous });
  const on = element("button", { type: "button", textContent: "›", title: words.next, ariaLabel: words.next });
  const search = element("input", { type: "search", placeholder: words.search, ariaLabel: words.search, value: state.query });
  const show = () => {
    const asked = plain(state.query);
    const fit = rows.filter((row) => plain(row.textContent).includes(asked));
    if (state.column >= 0) fit.sort((one, other) => (state.down ? -1 : 1) * order(value(one, state.column), value(other, state.column)));
    state.page = Math.max(0, Math.min(state.page, Math.ceil(fit.length / PAGE) - 1));
    const first = state.page * PAGE, shown = fit.slice(first, first + PAGE);
    const rest = rows.filter((row) => !shown.includes(row));
    rest.forEach((row) => { row.hidden = true; });
    shown.forEach((row) => { row.hidden = false; });
    table.tBodies[0].append(...shown, ...rest);
    counted.textContent = fill(words.rows, { first: shown.length ? first + 1 : 0, last: first + shown.length, all: fit.length });
    back.disabled = first === 0;
    on.disabled = first + PAGE >= fit.length;
    heads.forEach((head, at) => {
      if (at === state.column) head.ariaSort = state.down ? "descending" : "ascending";
      else head.removeAttribute("aria-sort");
    });
  };
  heads.forEach((head, column) => {
    if ("fixed" in head.dataset || rows.length < 2) return;
    const sort = element("button", { type: "button", className: "sort" }, ...head.childNodes);
    sort.addEventListener("click", () => {
      Object.assign(state, { down: state.column === column && !state.down, column, page: 0 });
      show();
      sort.blur(); // a button in focus would hold up what is new
    });
    head.replaceChildren(sort);
  });
  search.addEventListener("input", () => { Object.assign(state, { query: search.value, page: 0 }); show(); });
  for (const [button, step] of [[back, -1], [on, 1]]) button.addEventListener("click", () => { state.page += step; show(); button.blur(); });
  if (rows.length > 10) {
    const pager = element("span", { className: "pager" }, counted, ...(rows.length > PAGE ? [back, on] : []));
    table.before(element("div", { className: "tools" }, search, pager));
  }
  show();
}

// A calendar is one stop of the tab key: the cell that had the focus last, or the newest.
function enter(cell) {
  for (const other of cell.closest(".calendar").querySelectorAll("a")) other.tabIndex = other === cell ? 0 : -1;
}

const ARROWS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
document.addEventListener("keydown", (event) => {
  const here = event.target.closest(".calendar td"), arrow = ARROWS[event.key];
  if (!here || !arrow || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  const lines = here.closest("table").rows;
  let at = [here.parentElement.rowIndex, here.cellIndex], next;
  do { // some cells are empty
    at = [at[0] + arrow[0], at[1] + arrow[1]];
    next = lines[at[0]]?.cells[at[1]];
  } while (next && !next.querySelector("a"));
  next?.querySelector("a").focus();
});
document.addEventListener("focusin", (event) => { if (event.target.matches(".calendar a")) enter(event.target); });

function lists() {
  document.querySelectorAll("table[data-list]").forEach(list);
  for (const table of document.querySelectorAll(".calendar")) {
    enter(table.querySelector("a[aria-current]") || [...table.tBodies[0].rows[0].querySelectorAll("a")].at(-1));
  }
}

document.addEventListener("click", async (event) => {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  const copy = event.target.closest(".copy");
  if (!copy) return;
  try {
    await navigator.clipboard.writeText(copy.dataset.copy);
  } catch { // without HTTPS browsers give no clipboard
    const field = element("textarea", { value: copy.dataset.copy });
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  copy.classList.add("done");
  copy.title = words.copied;
  copy.blur();
});

followColours();
followReader();
lists();
setInterval(() => { followColours(); followReader(); }, 1000);
setInterval(refresh, 10000);
