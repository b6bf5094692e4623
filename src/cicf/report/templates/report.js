"use strict";

// Elements are made by name and text, never from markup: names of the data stay text.
const SVG = "http://www.w3.org/2000/svg";
function make(name, attributes, ...children) {
  const isDrawn = ["svg", "g", "line", "path", "circle", "rect", "text"].includes(name);
  const element = isDrawn ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes || {})) element.setAttribute(key, value);
  element.append(...children);
  return element;
}
const embedded = (element) => JSON.parse(document.getElementById(element.dataset.json).textContent);
const clamped = (value, low, high) => Math.min(high, Math.max(low, value));

const tip = document.getElementById("tip");
function showTip(x, y, ...children) {
  tip.replaceChildren(...children);
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const right = document.documentElement.clientWidth - width - 8;
  const left = x + 16 > right ? x - width - 16 : x + 16;
  tip.style.left = `${clamped(left, 8, Math.max(8, right)) + scrollX}px`;
  tip.style.top = `${clamped(y - height - 12, 8, innerHeight - height - 8) + scrollY}px`;
}
const hideTip = () => { tip.hidden = true; };
function say(text) { document.getElementById("said").textContent = text; }
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
document.addEventListener("pointerover", (event) => {
  const marked = event.target.closest("[data-tip]");
  if (marked) showTip(event.clientX, event.clientY, marked.dataset.tip);
});
document.addEventListener("pointerout", (event) => {
  if (event.target.closest("[data-tip]")) hideTip();
});

// Light and dark: what the system says, until the button is pressed.
{
  const root = document.documentElement;
  const button = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const told = () => button.setAttribute("aria-pressed", String(isDark()));
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    told();
  });
  system.addEventListener("change", told);
  told();
  document.getElementById("print").addEventListener("click", () => print());
  document.querySelector(".controls").hidden = false;
}

// On paper nothing can be opened.
{
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const each of closed) each.open = true;
  });
  addEventListener("afterprint", () => { for (const each of closed) each.open = false; });
}

// Tables: a body of rows moves as one, by the number of a field or else by its text.
function sortable(table) {
  const heads = [...table.tHead.rows[0].cells];
  const field = (body, column) => body.rows[0].cells[column];
  const number = (body, column) => {
    const value = field(body, column).dataset.value;
    return value === undefined ? NaN : Number(value);
  };
  const bodies = [...table.tBodies];
  if (bodies.length < 2) return;
  heads.forEach((head, column) => {
    const name = head.textContent;
    const isNumeric = bodies.some((body) => !Number.isNaN(number(body, column)));
    const button = make("button", { type: "button", class: "sort" }, name);
    head.replaceChildren(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const first = isNumeric ? "descending" : "ascending";
      const other = isNumeric ? "ascending" : "descending";
      const order = now === first ? other : first;
      for (const each of heads) each.setAttribute("aria-sort", each === head ? order : "none");
      const sign = order === "ascending" ? 1 : -1;
      bodies.sort((one, two) => {
        if (!isNumeric) {
          const [a, b] = [one, two].map((body) => field(body, column).textContent);
          return sign * a.localeCompare(b, "en", { numeric: true });
        }
        const [a, b] = [one, two].map((body) => number(body, column));
        // What has no number comes last, whichever way.
        if (Number.isNaN(a) || Number.isNaN(b)) return Number.isNaN(a) - Number.isNaN(b);
        return sign * (a - b);
      });
      table.append(...bodies);
      say(`sorted by ${name}, ${order}`);
    });
  });
}
for (const table of document.querySelectorAll("table")) sortable(table);

function legendButton(name, mark, onToggle) {
  const button = make("button", { type: "button", "aria-pressed": "true" }, mark, name);
  button.addEventListener("click", () => {
    const isOn = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isOn));
    onToggle(isOn);
  });
  return make("li", {}, button);
}
