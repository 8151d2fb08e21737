// An interactive chart for pointer, touch, keyboard and screen readers.

const DRAGGED = 6;

let chartsMade = 0;

class Chart extends Drawing {
  constructor(holder, spec) {
    super();
    this.spec = spec;
    this.id = `chart-${(chartsMade += 1)}`;
    this.hidden = new Set(spec.series.filter((one) => one.hidden));
    this.zoom = null;
    this.cursor = null;
    this.build(holder);
    new ResizeObserver(() => this.draw()).observe(this.plot);
  }

  // The fixed elements of a chart; their contents are redrawn.
  build(holder) {
    const { spec, id } = this;
    const tool = (text, label, act) => {
      const made = html("button", { type: "button", class: "tool", "aria-label": `${label}: ${spec.title}`, title: label }, text);
      made.addEventListener("click", act);
      return made;
    };
    this.reset = tool("Reset", "Reset the zoom", () => {
      this.zoomTo(null);
      this.plot.focus(); // the button is gone
    });
    const tools = html(
      "div", { class: "tools" },
      this.reset,
      tool("−", "Zoom out", () => this.zoomBy(2)),
      tool("+", "Zoom in", () => this.zoomBy(0.5)),
      tool("SVG", "Save as a picture", () => this.savePicture()),
      tool("CSV", "Save the values", () => this.saveValues()),
    );
    this.plot = html("div", {
      class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart",
      "aria-label": spec.title, "aria-describedby": `${id}-keys`,
    });
    this.canvas = svg("svg", { "aria-hidden": "true", focusable: "false" }, this.plot);
    this.bubble = html("div", { class: "bubble", hidden: true });
    this.plot.append(this.bubble);
    this.live = html("p", { class: "unseen", "aria-live": "polite" });
    this.legend = html("ul", { class: "legend" });
    for (const series of spec.series) this.legend.append(html("li", {}, this.legendButton(series)));
    holder.append(html(
      "figure", { class: spec.wide ? "chart wide" : "chart", id },
      html("div", { class: "head" }, html("figcaption", {}, html("strong", {}, spec.title)), tools),
      this.plot,
      this.legend,
      spec.caption ? html("p", { class: "caption" }, spec.caption) : "",
      html("p", { class: "unseen", id: `${id}-keys` }, "Arrow keys read the values, plus and minus zoom, shift with arrows moves, 0 resets."),
      this.live,
    ));
    this.listen();
  }

  legendButton(series) {
    const swatch = svg("svg", { class: `swatch s${series.tone}`, width: 28, height: 12, "aria-hidden": "true" });
    if (series.steps || series.many) svg("rect", { class: series.many ? "faint" : "bars", x: 1, y: 1, width: 26, height: 10 }, swatch);
    if (!series.many) svg("path", { class: "line", d: "M1,6H27", "stroke-dasharray": DASHES[series.dash ?? 0] }, swatch);
    if (known(series.marker)) svg("path", { class: "mark", d: MARKERS[series.marker](3.4), transform: "translate(14 6)" }, swatch);
    const button = html("button", { type: "button", "aria-pressed": String(!this.hidden.has(series)) }, swatch, series.name);
    button.title = "Show or hide; with shift, show this one alone";
    button.addEventListener("click", (event) => {
      const others = this.spec.series.filter((one) => one !== series);
      if (event.shiftKey) this.hidden = new Set(others);
      else if (!this.hidden.delete(series)) this.hidden.add(series);
      [...this.legend.querySelectorAll("button")].forEach((one, index) => {
        one.setAttribute("aria-pressed", String(!this.hidden.has(this.spec.series[index])));
      });
      this.draw();
    });
    return button;
  }

  // Reading values.

  stops() {
    const { x0, x1 } = this.frame;
    const all = this.visible.flatMap((one) => (one.steps ? one.y.map((_, index) => (one.x[index] + one.x[index + 1]) / 2) : one.x));
    return [...new Set(all)].filter((value) => value >= x0 && value <= x1).sort((one, other) => one - other);
  }

  rowsAt(value, pointerY) {
    const rows = [];
    for (const one of this.visible) {
      const index = one.steps
        ? one.x.findIndex((edge, place) => value >= edge && value < one.x[place + 1])
        : one.x.indexOf(value);
      if (index < 0) continue;
      if (one.many) {
        if (pointerY === null) continue;
        let best = null;
        one.many.forEach((list, line) => {
          if (!known(list[index])) return;
          const away = Math.abs(this.frame.y(list[index]) - pointerY);
          if (best === null || away < best.away) best = { away, line, list };
        });
        if (best) rows.push({ one, name: one.names[best.line], y: best.list[index], text: shortNumber(best.list[index], 5), line: best.list });
      } else if (known(one.y[index])) {
        const range = one.low && known(one.low[index]) ? ` (${shortNumber(one.low[index])} to ${shortNumber(one.high[index])})` : "";
        rows.push({ one, name: one.name, y: one.y[index], text: shortNumber(one.y[index], 5), range });
      }
    }
    return rows;
  }

  point(value, pointerY, speak) {
    const { box, x } = this.frame;
    this.cursor = value;
    this.overlay.replaceChildren();
    const rows = this.rowsAt(value, pointerY);
    const across = x(value);
    if (!rows.length || across < box.left - 1 || across > box.right + 1) { this.bubble.hidden = true; return; }
    svg("path", { class: "cursor", d: `M${across.toFixed(1)},${box.top}V${box.bottom}` }, this.overlay);
    for (const row of rows) {
      const y = this.lanes.get(row.one);
      const group = svg("g", { class: `s${row.one.tone}` }, this.overlay);
      if (row.line) {
        const points = row.line.map((v, index) => (known(v) ? `${x(row.one.x[index]).toFixed(1)},${y(v).toFixed(1)}` : null)).filter(known);
        svg("path", { class: "line", d: `M${points.join("L")}` }, group);
      }
      svg("circle", { class: "dot", cx: across, cy: y(row.y), r: 4.5 }, group);
    }
    const step = this.visible.find((one) => one.steps);
    const edge = step ? step.x.findIndex((from, place) => value >= from && value < step.x[place + 1]) : -1;
    const title = `${this.spec.x.label} ${edge >= 0 ? `${shortNumber(step.x[edge])} to ${shortNumber(step.x[edge + 1])}` : shortNumber(value, 6)}`;
    this.bubble.replaceChildren(
      html("p", {}, title),
      ...rows.map((row) => html("p", { class: `s${row.one.tone}` }, html("span", { class: "key" }), `${row.name} `, html("b", {}, row.text), html("small", {}, row.range ?? ""))),
    );
    this.bubble.hidden = false;
    const room = this.bubble.offsetWidth + 14;
    const scale = this.plot.clientWidth / this.frame.width;
    this.bubble.style.left = `${clamp(across * scale + (across * scale + room > this.plot.clientWidth ? -room : 14), 0, Math.max(0, this.plot.clientWidth - room + 14))}px`;
    this.bubble.style.top = `${box.top}px`;
    if (speak) this.live.textContent = `${title}: ${rows.map((row) => `${row.name} ${row.text}${row.range ?? ""}`).join(", ")}`;
  }

  rest() {
    this.cursor = null;
    this.bubble.hidden = true;
    this.overlay?.replaceChildren();
  }

  // Zooming.

  zoomTo(zoom) {
    this.zoom = zoom;
    if (zoom) {
      const [low, high] = this.extent();
      const span = Math.min(zoom.x[1] - zoom.x[0], high - low);
      const from = clamp(zoom.x[0], low, high - span);
      this.zoom = { ...zoom, x: [from, from + span] };
      if (span >= (high - low) * 0.999 && !zoom.y) this.zoom = null;
    }
    this.draw();
  }

  zoomBy(factor) {
    const { x0, x1 } = this.frame;
    const middle = this.cursor ?? (x0 + x1) / 2;
    const span = Math.max((x1 - x0) * factor, (this.extent()[1] - this.extent()[0]) * 1e-3);
    const share = (middle - x0) / (x1 - x0);
    this.zoomTo({ x: [middle - share * span, middle + (1 - share) * span], y: null });
  }

  listen() {
    const { plot } = this;
    let start = null;
    const place = (event) => {
      const bounds = this.canvas.getBoundingClientRect();
      const scale = this.frame.width / bounds.width;
      return { x: (event.clientX - bounds.left) * scale, y: (event.clientY - bounds.top) * scale };
    };
    const value = (at) => {
      const { box, x0, x1, y0, y1 } = this.frame;
      return {
        x: x0 + ((clamp(at.x, box.left, box.right) - box.left) / (box.right - box.left)) * (x1 - x0),
        y: y0 + ((box.bottom - clamp(at.y, box.top, box.bottom)) / (box.bottom - box.top)) * (y1 - y0),
      };
    };
    const read = (at) => {
      const stops = this.stops();
      if (stops.length) this.point(stops[nearest(stops, value(at).x)], at.y, false);
    };
    plot.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      start = place(event);
      if (event.pointerType === "mouse") plot.setPointerCapture(event.pointerId);
    });
    plot.addEventListener("pointermove", (event) => {
      const at = place(event);
      if (!start) { read(at); return; }
      if (Math.abs(at.x - start.x) < DRAGGED) return;
      const { box } = this.frame;
      this.bubble.hidden = true;
      const tall = Math.abs(at.y - start.y) > 30;
      const [from, to] = [start.x, at.x].map((one) => clamp(one, box.left, box.right)).sort((a, b) => a - b);
      const [top, bottom] = tall ? [start.y, at.y].map((one) => clamp(one, box.top, box.bottom)).sort((a, b) => a - b) : [box.top, box.bottom];
      this.overlay.replaceChildren();
      svg("rect", { class: "chosen", x: from, y: top, width: to - from, height: bottom - top }, this.overlay);
    });
    plot.addEventListener("pointerup", (event) => {
      const at = place(event);
      const from = start;
      start = null;
      if (!from) return;
      if (Math.abs(at.x - from.x) < DRAGGED) { read(at); return; }
      const [a, b] = [value(from), value(at)];
      const tall = Math.abs(at.y - from.y) > 30;
      this.rest();
      this.zoomTo({ x: [Math.min(a.x, b.x), Math.max(a.x, b.x)], y: tall ? [Math.min(a.y, b.y), Math.max(a.y, b.y)] : null });
    });
    plot.addEventListener("pointercancel", () => { start = null; this.rest(); });
    // Lifting a finger is a leave event too, but the reading stays.
    plot.addEventListener("pointerleave", (event) => { if (!start && event.pointerType === "mouse") this.rest(); });
    plot.addEventListener("dblclick", () => this.zoomTo(null));
    plot.addEventListener("blur", () => this.rest());
    plot.addEventListener("keydown", (event) => this.key(event));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const stops = this.stops();
    const { x0, x1 } = this.frame;
    const at = this.cursor === null || !stops.length ? -1 : nearest(stops, this.cursor);
    const move = (to) => { if (stops.length) this.point(stops[clamp(to, 0, stops.length - 1)], null, true); };
    const shift = (share) => this.zoomTo({ x: [x0 + share * (x1 - x0), x1 + share * (x1 - x0)], y: this.zoom?.y ?? null });
    const acts = {
      ArrowRight: () => (event.shiftKey ? shift(0.2) : move(at + 1)),
      ArrowLeft: () => (event.shiftKey ? shift(-0.2) : move(at < 0 ? stops.length - 1 : at - 1)),
      Home: () => move(0),
      End: () => move(stops.length - 1),
      "+": () => this.zoomBy(0.5),
      "=": () => this.zoomBy(0.5),
      "-": () => this.zoomBy(2),
      0: () => this.zoomTo(null),
      Escape: () => this.rest(),
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[event.key]();
  }

  // Saving.

  savePicture() {
    this.rest();
    const copy = this.canvas.cloneNode(true);
    const looks = ["fill", "stroke", "stroke-width", "stroke-opacity", "fill-opacity", "opacity", "font-size", "font-family", "font-weight"];
    const [from, to] = [this.canvas, copy].map((one) => one.querySelectorAll("*"));
    from.forEach((one, index) => {
      const style = getComputedStyle(one);
      for (const look of looks) to[index].setAttribute(look, style.getPropertyValue(look));
    });
    copy.setAttribute("width", this.frame.width);
    save(`${fileName(this.spec.title)}.svg`, new XMLSerializer().serializeToString(copy), "image/svg+xml");
  }

  saveValues() {
    const columns = this.visible.flatMap((one) => (one.many
      ? one.many.map((list, index) => [one.names[index], one, list])
      : [[one.name, one, one.y], ...(one.low ? [[`${one.name} low`, one, one.low], [`${one.name} high`, one, one.high]] : [])]));
    const quoted = (text) => `"${String(text).replaceAll('"', '""')}"`;
    const xs = [...new Set(this.visible.flatMap((one) => (one.steps ? one.x.slice(0, -1) : one.x)))].sort((a, b) => a - b);
    const lines = [[this.spec.x.label, ...columns.map(([name]) => name)].map(quoted).join(",")];
    for (const value of xs) {
      lines.push([value, ...columns.map(([, one, list]) => list[one.x.indexOf(value)] ?? "")].join(","));
    }
    save(`${fileName(this.spec.title)}.csv`, `${lines.join("\n")}\n`, "text/csv");
  }
}

const fileName = (title) => title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "");

const save = (name, content, type) => {
  const address = URL.createObjectURL(new Blob([content], { type }));
  html("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
};
