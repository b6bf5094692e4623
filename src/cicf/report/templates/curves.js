// Learning curves: drawn at the width there is, read off at the epoch under the cursor.
const SYMBOLS = { theta: "θ", theta_dagger: "θ†" };
const ARROWS = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };

function niceTicks(low, high, count) {
  const rough = (high - low || Math.abs(high) || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough);
  const found = [];
  for (let at = Math.floor(low / step); at <= Math.ceil(high / step - 1e-9); at += 1) found.push(at * step);
  return found.length > 1 ? found : [found[0], found[0] + step];
}
const short = (value) => String(Number(value.toPrecision(6)));

function drawPanel(panel, hidden) {
  const epochs = [...new Set(panel.curves.flatMap((each) => each.epochs))].sort((a, b) => a - b);
  const stage = make("div", { class: "stage", tabindex: "0", role: "img" });
  const figure = make("figure", { class: "panel" }, make("h4", {}, panel.title), stage);
  const shown = () => panel.curves.filter((each) => !hidden.has(each.label) && !hidden.has(each.parameters));
  let place = { x: () => 0, height: 0 };
  let at = null;

  function draw() {
    const width = Math.max(stage.clientWidth, 200);
    const height = clamped(width * 0.52, 170, 300);
    const [left, right, top, bottom] = [42, 12, 8, 34];
    const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    const curves = shown();
    const values = (curves.length ? curves : panel.curves).flatMap((each) => [...each.low, ...each.high]);
    const ticks = niceTicks(Math.min(...values), Math.max(...values), 4);
    const [low, high] = [ticks[0], ticks[ticks.length - 1]];
    const [first, last] = [epochs[0], epochs[epochs.length - 1]];
    const inner = width - left - right;
    const x = (epoch) => left + (first === last ? inner / 2 : (inner * (epoch - first)) / (last - first));
    const y = (value) => top + (height - top - bottom) * (1 - (value - low) / (high - low));
    for (const tick of ticks) {
      svg.append(make("line", { class: "grid", x1: left, x2: width - right, y1: y(tick), y2: y(tick) }),
        make("text", { x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, short(tick)));
    }
    const every = Math.ceil(epochs.length / Math.max(2, Math.floor(inner / 44)));
    epochs.forEach((epoch, index) => {
      if (index % every === 0) svg.append(make("text", { x: x(epoch), y: height - 16, "text-anchor": "middle" }, String(epoch)));
    });
    svg.append(make("text", { x: left + inner / 2, y: height - 1, "text-anchor": "middle" }, "epoch"));
    for (const curve of curves) svg.append(...drawn(curve, x, y));
    place = { x, top, bottom: height - bottom };
    stage.replaceChildren(svg);
    describe();
  }

  function drawn(curve, x, y) {
    const color = curve.series % 8;
    const line = (values) => curve.epochs.map((epoch, i) => `${x(epoch).toFixed(1)} ${y(values[i]).toFixed(1)}`);
    const parts = [];
    if (curve.n > 1) {
      const outline = [...line(curve.high), ...line(curve.low).reverse()].join("L");
      parts.push(make("path", { class: `band fill-${color}`, d: `M${outline}Z` }));
    }
    const dashed = curve.parameters === "theta_dagger" ? " dagger" : "";
    parts.push(make("path", { class: `curve stroke-${color}${dashed}`, d: `M${line(curve.mean).join("L")}` }));
    if (curve.epochs.length <= 12) {
      for (const i of curve.epochs.keys()) parts.push(make("circle", { class: `fill-${color}`, cx: x(curve.epochs[i]), cy: y(curve.mean[i]), r: 2.6 }));
    }
    return parts;
  }

  function describe() {
    const ends = shown().map((each) => {
      const [from, to] = [each.mean[0], each.mean[each.mean.length - 1]];
      return `${each.label} at ${SYMBOLS[each.parameters]} from ${from.toFixed(2)} to ${to.toFixed(2)}${panel.unit}`;
    });
    stage.setAttribute("aria-label", `${panel.title} by epoch: ${ends.join("; ") || "no curve is shown"}. Arrow keys read it epoch by epoch.`);
  }

  function read(epoch, point) {
    at = epoch;
    const svg = stage.firstChild;
    svg.querySelector(".crosshair")?.remove();
    const x = place.x(epoch);
    svg.append(make("line", { class: "crosshair", x1: x, x2: x, y1: place.top, y2: place.bottom }));
    const rows = shown().filter((each) => each.epochs.includes(epoch)).map((each) => {
      const i = each.epochs.indexOf(epoch);
      const dot = make("i");
      dot.style.background = `var(--series-${each.series % 8})`;
      return { name: `${each.label}, ${SYMBOLS[each.parameters]}`, value: each.mean[i], dot };
    });
    rows.sort((one, two) => two.value - one.value);
    const lines = rows.map((row) => make("div", {}, row.dot, make("span", {}, row.name), make("span", {}, `${row.value.toFixed(panel.unit ? 1 : 3)}${panel.unit}`)));
    showTip(point.x, point.y, make("b", {}, `epoch ${epoch}`), ...lines);
    return `epoch ${epoch}: ${rows.map((row) => `${row.name} ${row.value.toFixed(3)}`).join("; ")}`;
  }

  function leave() {
    at = null;
    stage.querySelector(".crosshair")?.remove();
    hideTip();
  }

  stage.addEventListener("pointermove", (event) => {
    const x = event.clientX - stage.getBoundingClientRect().left;
    const near = epochs.reduce((a, b) => (Math.abs(place.x(b) - x) < Math.abs(place.x(a) - x) ? b : a));
    read(near, { x: event.clientX, y: event.clientY });
  });
  stage.addEventListener("pointerleave", leave);
  stage.addEventListener("blur", leave);
  stage.addEventListener("keydown", (event) => {
    if (event.key === "Escape") leave();
    if (!(event.key in ARROWS)) return;
    event.preventDefault();
    const now = at === null ? -Math.sign(ARROWS[event.key]) * Infinity : epochs.indexOf(at);
    const index = clamped(at === null && Number.isFinite(ARROWS[event.key]) ? now : now + ARROWS[event.key] || 0, 0, epochs.length - 1);
    const box = stage.getBoundingClientRect();
    say(read(epochs[index], { x: box.left + place.x(epochs[index]), y: box.top + 60 }));
  });
  new ResizeObserver(draw).observe(stage);
  return { figure, draw };
}

function drawCurves(root) {
  const { labels, panels } = embedded(root);
  const hidden = new Set();
  const drawn = panels.filter((panel) => panel.curves.length).map((panel) => drawPanel(panel, hidden));
  const toggle = (name) => (isOn) => {
    if (isOn) hidden.delete(name); else hidden.add(name);
    for (const each of drawn) each.draw();
  };
  const line = (style) => make("svg", { class: "line", "aria-hidden": "true" }, make("line", { class: `curve ${style}`, x1: 1, x2: 25, y1: 6, y2: 6 }));
  const rows = labels.map(([name, series]) => legendButton(name, line(`stroke-${series % 8}`), toggle(name)));
  const used = ["theta", "theta_dagger"].filter((each) => panels.some((panel) => panel.curves.some((curve) => curve.parameters === each)));
  const styles = used.length < 2 ? [] : used.map((each) => legendButton(`at ${SYMBOLS[each]}`, line(each === "theta" ? "stroke-7" : "stroke-7 dagger"), toggle(each)));
  root.append(make("ul", { class: "legend", "aria-label": "Curves that are shown" }, ...rows, ...styles),
    make("div", { class: "panels" }, ...drawn.map((each) => each.figure)));
  for (const each of drawn) each.draw();
}
for (const root of document.querySelectorAll(".curves")) drawCurves(root);
