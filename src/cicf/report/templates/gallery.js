// Grad-CAMs: one cursor for all pictures of an image, and what each map says at its place.
function watchLook(look) {
  const frames = [...look.querySelectorAll(".frame")].map((frame) => {
    const lines = ["h", "v"].map((name) => make("span", { class: name }));
    for (const line of lines) line.hidden = true;
    frame.append(...lines);
    const values = frame.dataset.map === undefined ? null : Uint8Array.from(atob(frame.dataset.map), (each) => each.charCodeAt(0));
    return { frame, lines, values, side: Number(frame.dataset.side), output: frame.parentElement.querySelector("output") };
  });
  let cursor = null;

  function move(x, y) {
    cursor = { x: clamped(x, 0, 1), y: clamped(y, 0, 1) };
    for (const { lines: [h, v], values, side, output } of frames) {
      h.hidden = v.hidden = false;
      h.style.top = `${100 * cursor.y}%`;
      v.style.left = `${100 * cursor.x}%`;
      if (values === null) continue;
      const [column, row] = [cursor.x, cursor.y].map((each) => Math.min(side - 1, Math.floor(each * side)));
      output.textContent = `here ${(values[row * side + column] / 255).toFixed(2)}`;
    }
  }

  function leave() {
    cursor = null;
    for (const { lines, output } of frames) {
      for (const line of lines) line.hidden = true;
      if (output) output.textContent = "";
    }
  }

  const steps = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  for (const { frame } of frames) {
    frame.addEventListener("pointermove", (event) => {
      const box = frame.getBoundingClientRect();
      move((event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height);
    });
    frame.addEventListener("pointerleave", leave);
    frame.addEventListener("focus", () => { if (frame.matches(":focus-visible")) move(0.5, 0.5); });
    frame.addEventListener("blur", leave);
    frame.addEventListener("keydown", (event) => {
      if (event.key === "Escape") leave();
      if (!(event.key in steps)) return;
      event.preventDefault();
      const [right, down] = steps[event.key];
      const from = cursor || { x: 0.5, y: 0.5 };
      move(from.x + right / 16, from.y + down / 16);
      const told = frames.filter((each) => each.values).map((each) => `${each.frame.parentElement.querySelector("b").textContent} ${each.output.textContent}`);
      say(told.join("; "));
    });
  }
}
for (const look of document.querySelectorAll(".look")) watchLook(look);
