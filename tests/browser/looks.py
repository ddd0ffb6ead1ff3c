"""What is looked for in a page that is shown: WCAG AA, text that is not translated, lines that leave the window."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

_RULES = {
    "runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]},
    "resultTypes": ["violations"],
}
_ALLOWED = (
    "DAG DAGs Airflow Hudi Spark Python Instant instant price "
    "Asia Shanghai GetLogStore ada everything mine_wide plan settle SHARD BEGIN timeline fleet "
    "upserts search"
)
"""Words that a Chinese page has: names of products and their parts, and of this world's pipelines, users and tasks."""
_FOREIGN = """(allowed) => {
  const names = new Set(allowed.split(" ")), found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_ALL);
  const look = (text) => {
    // What has a digit, a sign or a capital within it is an id, an address or a class.
    for (const word of (text || "").split(/[\\s\\u00a0,，。：；（）()“”…、]+/)) {
      if (/^[A-Za-z]?[a-z]{2,}$/.test(word) && !names.has(word)) found.push(word);
    }
  };
  for (let node = walker.currentNode; node; node = walker.nextNode()) {
    const place = node.nodeType === 3 ? node.parentElement : node;
    if (place.closest?.("[lang=en], script, style")) continue;
    if (node.nodeType === 3) look(node.textContent);
    else for (const name of ["title", "aria-label", "placeholder"]) look(node.getAttribute?.(name));
  }
  return [...new Set(found)];
}"""
_LEAVES = """() => {
  const width = document.documentElement.clientWidth, wrong = [];
  if (document.documentElement.scrollWidth > width) wrong.push("the page is wider than the window");
  for (const shown of document.querySelectorAll("main *")) {
    const box = shown.getBoundingClientRect();
    if (box.width && !shown.closest("svg, .hidden") && (box.right > width + 1 || box.left < -1)) {
      wrong.push(`leaves the window: ${shown.outerHTML.slice(0, 80)}`);
    }
  }
  for (const shown of document.querySelectorAll(".badge, .button, .fact dd, td, th")) {
    const cut = shown.clientWidth && shown.scrollWidth > shown.clientWidth + 1;
    if (cut) wrong.push(`is cut: ${shown.outerHTML.slice(0, 80)}`);
  }
  const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const range = document.createRange();
    for (const figure of walker.currentNode.data.matchAll(/[\\d.,]+\\u00a0[^\\s，。；：（]+/g)) {
      range.setStart(walker.currentNode, figure.index);
      range.setEnd(walker.currentNode, figure.index + figure[0].length);
      const tops = new Set([...range.getClientRects()].map((box) => Math.round(box.top / 8)));
      if (tops.size > 1) wrong.push(`breaks: ${figure[0]}`);
    }
  }
  return [...new Set(wrong)].slice(0, 5);
}"""


def untranslated(page: Page) -> list[str]:
    """English words of a Chinese page that are no names."""
    return [f"is not translated: {word}" for word in page.evaluate(_FOREIGN, _ALLOWED)]


def leaving(page: Page) -> list[str]:
    """What leaves the window, is cut, or breaks within a figure."""
    return list(page.evaluate(_LEAVES))


def violations(page: Page) -> list[str]:
    """The rules of WCAG A and AA that the page breaks, each with an example."""
    found: list[dict[str, Any]] = Axe().run(page, options=_RULES).response["violations"]
    firsts = [(each["id"], len(each["nodes"]), each["nodes"][0]) for each in found]
    return [f"{rule}, {n} times: {node['html'][:120]} {node['failureSummary'][:300]}" for rule, n, node in firsts]
