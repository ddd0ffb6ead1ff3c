// Follows Airflow's colours, opens Airflow's own pages outside of the frame, and shows what is new every ten seconds.
"use strict";

function airflowIsDark() {
  try {
    const shown = window.parent.document.documentElement.classList;
    if (shown.contains("dark")) return true;
    if (shown.contains("light")) return false;
  } catch { /* not in Airflow's frame */ }
  return window.matchMedia("(prefers-color-scheme: dark)").matches;
}

function followColours() {
  document.documentElement.dataset.theme = airflowIsDark() ? "dark" : "light";
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
      said.textContent = `Airflow refused (${answer.status}): ${why}`;
      return null;
    }
    return found;
  } catch (error) {
    said.textContent = `Airflow does not answer: ${error.message}`;
    return null;
  } finally {
    buttons.forEach((button) => { button.disabled = false; });
  }
}

// The params of a run: what is filled in; a ticked box is true; ticked ranges become { shard: [begin, end] }.
function confOf(form, button) {
  const conf = {}, cursors = {};
  // A run takes one span of each shard: what lies unticked within it would be read, too.
  for (const field of form.querySelectorAll("[name=range]:not(:checked)")) {
    const same = [...form.querySelectorAll(`[name=range][data-shard="${CSS.escape(field.dataset.shard)}"]`)];
    const at = same.indexOf(field);
    if (same.slice(0, at).some((one) => one.checked) && same.slice(at).some((one) => one.checked)) {
      throw new Error(`of shard ${field.dataset.shard}, tick the range from ${field.dataset.begin} as well, or ask in two runs`);
    }
  }
  for (const field of form.elements) {
    if (!field.name || field.tagName === "BUTTON") continue;
    if (field.type === "checkbox") {
      if (!field.checked) continue;
      if (field.name !== "range") { conf[field.name] = true; continue; }
      const { shard, begin, end } = field.dataset;
      cursors[shard] = [cursors[shard]?.[0] ?? begin, end];
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
    const { is_paused: paused } = await fetch(path).then((answer) => answer.json()).catch(() => ({}));
    const link = document.createElement("a");
    link.dataset.top = "";
    link.href = `${document.body.dataset.airflow}/dags/${encodeURIComponent(run.dag_id)}/runs/${encodeURIComponent(run.dag_run_id)}`;
    link.textContent = run.dag_run_id;
    said.replaceChildren(paused ? `Queued. The DAG ${run.dag_id} is paused: unpause it, and the run begins: ` : "Begun: ", link);
  } else if (form.matches("form.pause")) {
    const paused = event.submitter.value === "true";
    if (await ask(form, "PATCH", "?update_mask=is_paused", { is_paused: paused })) {
      said.textContent = paused ? "It is paused." : "It runs.";
    }
  }
});

const outputs = () => [...document.querySelectorAll("output")];

// Whether somebody is at work on the page, or waits for an answer.
function busy() {
  const ticked = document.querySelector("input[type=checkbox]:checked:not([hidden])");
  const asking = outputs().some((said) => said.textContent === "…");
  return asking || ticked || document.activeElement?.matches("input, textarea, button") || window.getSelection().toString();
}

async function refresh() {
  if (document.hidden || busy()) return;
  const answer = await fetch(location.href, { headers: { Accept: "text/html" } }).catch(() => null);
  if (!answer || answer.status === 401 || answer.status === 403) return;
  const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("main");
  // Somebody may have pressed a button meanwhile: its form would never show the answer, and the page would stand still.
  if (busy()) return;
  const shown = document.querySelector("main");
  if (found && shown && found.innerHTML !== shown.innerHTML) {
    const at = document.activeElement && document.activeElement.getAttribute("href");
    const said = outputs().map((output) => [...output.childNodes]);
    shown.replaceChildren(...found.childNodes);
    if (outputs().length === said.length) outputs().forEach((output, at) => output.replaceChildren(...said[at]));
    if (at) document.querySelector(`main a[href="${CSS.escape(at)}"]`)?.focus();
  }
}

followColours();
setInterval(followColours, 1000);
setInterval(refresh, 10000);
