// t-SNE: the same images as several networks see them; a point that is hovered is marked in all.
function drawClouds(root) {
  const data = embedded(root);
  const groups = { class: [...new Set(data.classes)], domain: [...new Set(data.domains)] };
  const dimmed = { class: new Set(), domain: new Set() };
  const of = { class: data.classes, domain: data.domains };
  let colouring = "class";
  const colour = (kind, name) => {
    const place = groups[kind].indexOf(name);
    // Beyond eight names the hand-picked colours end; a circle of hues goes on.
    if (groups[kind].length <= 8) return `var(--series-${place})`;
    return `oklch(var(--L) 0.15 ${((360 * place) / groups[kind].length + 20).toFixed(0)})`;
  };

  const planes = data.clouds.map((cloud) => {
    const svg = make("svg", { viewBox: "-4 -4 308 308", "aria-hidden": "true" });
    const points = cloud.points.map(([x, y], i) => {
      const [px, py] = [300 * x, 300 * (1 - y)];
      const isTested = data.tested.includes(data.domains[i]);
      const point = isTested ? make("rect", { x: px - 3.6, y: py - 3.6, width: 7.2, height: 7.2 }) : make("circle", { cx: px, cy: py, r: 3.9 });
      point.setAttribute("class", "point");
      svg.append(point);
      return point;
    });
    const label = `t-SNE of ${cloud.label}: ${data.images.length} images of ${groups.class.length} classes. Arrow keys go from image to image.`;
    const stage = make("div", { class: "stage", tabindex: "0", role: "img", "aria-label": label }, svg);
    return { cloud, svg, points, stage, figure: make("figure", { class: "panel" }, make("h4", {}, cloud.label), stage) };
  });

  function paint() {
    for (const { points } of planes) points.forEach((point, i) => {
      point.style.fill = colour(colouring, of[colouring][i]);
      point.classList.toggle("dim", dimmed.class.has(data.classes[i]) || dimmed.domain.has(data.domains[i]));
    });
  }

  let marked = null;
  function mark(i, plane, where) {
    for (const { points } of planes) {
      if (marked !== null) points[marked].classList.remove("on");
      if (i !== null) points[i].classList.add("on");
    }
    marked = i;
    if (i === null) { hideTip(); return; }
    const thumb = make("span", { class: "thumb" });
    const scale = 56 / data.side;
    thumb.style.backgroundImage = `url(${data.sprite})`;
    thumb.style.backgroundSize = `${data.columns * 56}px auto`;
    thumb.style.backgroundPosition = `${-(i % data.columns) * data.side * scale}px ${-Math.floor(i / data.columns) * data.side * scale}px`;
    const rows = [["class", data.classes[i]], ["domain", data.domains[i]], ["run", plane.cloud.label]];
    showTip(where.x, where.y, thumb, make("b", {}, data.images[i]),
      ...rows.map(([name, value]) => make("div", {}, make("span", {}, name), make("span", {}, value))));
    say(`${data.images[i]}, ${rows.map((row) => row.join(" ")).join(", ")}`);
  }

  for (const plane of planes) {
    const { stage, svg, points, cloud } = plane;
    const isShown = (i) => !points[i].classList.contains("dim");
    const at = (i) => {
      const box = svg.getBoundingClientRect();
      const [x, y] = cloud.points[i];
      return { x: box.left + (box.width * (300 * x + 4)) / 308, y: box.top + (box.height * (300 * (1 - y) + 4)) / 308 };
    };
    stage.addEventListener("pointermove", (event) => {
      const away = (i) => Math.hypot(at(i).x - event.clientX, at(i).y - event.clientY);
      const near = cloud.points.map((_, i) => i).filter(isShown).reduce((a, b) => (a !== null && away(a) <= away(b) ? a : b), null);
      mark(near !== null && away(near) < 24 ? near : null, plane, { x: event.clientX, y: event.clientY });
    });
    stage.addEventListener("pointerleave", () => mark(null));
    stage.addEventListener("blur", () => mark(null));
    stage.addEventListener("keydown", (event) => {
      if (event.key === "Escape") mark(null);
      const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (step === undefined) return;
      event.preventDefault();
      const order = cloud.points.map((_, i) => i).filter(isShown);
      if (!order.length) return;
      const next = marked === null ? 0 : (order.indexOf(marked) + step + order.length) % order.length;
      mark(order[next], plane, at(order[next]));
    });
  }

  const legends = {};
  for (const kind of ["class", "domain"]) {
    const buttons = groups[kind].map((name) => {
      const dot = make("rect", { width: 12, height: 12, rx: 6 });
      dot.style.fill = colour(kind, name);
      return legendButton(name, make("svg", { class: "swatch", "aria-hidden": "true" }, dot), (isOn) => {
        if (isOn) dimmed[kind].delete(name); else dimmed[kind].add(name);
        paint();
      });
    });
    legends[kind] = make("ul", { class: "legend", "aria-label": `Each ${kind}` }, ...buttons);
    legends[kind].hidden = kind !== colouring;
  }
  const choice = make("ul", { class: "legend control", "aria-label": "What colours mean" });
  for (const kind of ["class", "domain"]) {
    const button = make("button", { type: "button", "aria-pressed": String(kind === colouring) }, `colour by ${kind}`);
    button.addEventListener("click", () => {
      colouring = kind;
      for (const each of choice.querySelectorAll("button")) each.setAttribute("aria-pressed", String(each === button));
      for (const each of ["class", "domain"]) legends[each].hidden = each !== kind;
      paint();
    });
    choice.append(make("li", {}, button));
  }
  root.append(choice, legends.class, legends.domain, make("div", { class: "panels" }, ...planes.map((each) => each.figure)));
  paint();
}
for (const root of document.querySelectorAll(".clouds")) drawClouds(root);
