// An interactive chart for pointer, touch, keyboard and screen readers.
//
// A series is a line (`x`, `y`, perhaps with a band `low`, `high`), a bundle of thin lines (`many`,
// named by `names`) or a histogram (`steps`: `x` are edges, one more than `y`).

const DASHES = ["", "7 4", "2 3", "10 3 2 3", "4 2", "12 4", "1 4"];
const MARKERS = [
  (r) => `M${-r},0a${r},${r} 0 1,0 ${2 * r},0a${r},${r} 0 1,0 ${-2 * r},0`,
  (r) => `M${-r},${-r}h${2 * r}v${2 * r}h${-2 * r}z`,
  (r) => `M0,${-1.2 * r}L${1.2 * r},${r}H${-1.2 * r}z`,
  (r) => `M0,${-1.3 * r}L${1.3 * r},0L0,${1.3 * r}L${-1.3 * r},0z`,
  (r) => `M0,${1.2 * r}L${1.2 * r},${-r}H${-1.2 * r}z`,
  (r) => `M${-r},-1H-1V${-r}H1V-1H${r}V1H1V${r}H-1V1H${-r}z`,
  (r) => `M0,-1L${r - 1},${-r}L${r},${1 - r}L1,0L${r},${r - 1}L${r - 1},${r}L0,1L${1 - r},${r}L${-r},${r - 1}L-1,0L${-r},${1 - r}L${1 - r},${-r}z`,
];
const HEIGHT = 290;
const MOST_MARKERS = 14;
const DRAGGED = 6;

let chartsMade = 0;

class Chart {
  constructor(holder, spec) {
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

  get visible() { return this.spec.series.filter((one) => !this.hidden.has(one)); }

  // The range of all values along x, and of the visible ones along y.
  extent() {
    const xs = this.spec.series.flatMap((one) => [one.x[0], one.x[one.x.length - 1]]).filter(known);
    let [low, high] = xs.length ? [Math.min(...xs), Math.max(...xs)] : [0, 1];
    if (low === high) [low, high] = [low - 1, high + 1];
    return [low, high];
  }

  rangeAlongY(right, x0, x1) {
    const axis = right ? this.spec.right : this.spec.y;
    let low = Infinity;
    let high = -Infinity;
    const see = (value) => {
      if (!known(value)) return;
      if (value < low) low = value;
      if (value > high) high = value;
    };
    for (const one of this.visible) {
      if (Boolean(one.right) !== right) continue;
      one.x.forEach((x, index) => {
        if (x < x0 - 1e-9 || x > x1 + 1e-9) return;
        for (const list of [one.y, one.low, one.high, ...(one.many ?? [])]) if (list) see(list[index]);
      });
    }
    for (const value of axis.include ?? []) see(value);
    if (low > high) return [0, 1];
    const room = (high - low) * 0.06 || Math.abs(high) * 0.05 || 1;
    // A scale ends at its natural limit, if any, and has a margin elsewhere.
    return [low === axis.include?.[0] ? low : low - room, high === axis.include?.[1] ? high : high + room];
  }

  draw() {
    const width = Math.max(this.plot.clientWidth, 260);
    const height = HEIGHT;
    const { spec } = this;
    const right = spec.right && this.visible.some((one) => one.right);
    const [x0, x1] = this.zoom?.x ?? this.extent();
    const [y0, y1] = this.zoom?.y ?? this.rangeAlongY(false, x0, x1);
    const yTicks = ticks(y0, y1, 5);
    const labels = yTicks.at.map((at) => tickText(at, yTicks.digits));
    const left = 36 + 7 * Math.max(3, ...labels.map((text) => text.length));
    const box = { left, top: 12, right: width - (right ? 52 : 14), bottom: height - 44 };
    const x = (value) => box.left + ((value - x0) / (x1 - x0)) * (box.right - box.left);
    const y = (value) => box.bottom - ((value - y0) / (y1 - y0)) * (box.bottom - box.top);
    this.frame = { box, x0, x1, y0, y1, x, y, width, height };
    this.canvas.replaceChildren();
    this.canvas.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.canvas.setAttribute("height", height);
    const clip = svg("clipPath", { id: `${this.id}-clip` }, this.canvas);
    svg("rect", { x: box.left - 5, y: box.top - 6, width: box.right - box.left + 10, height: box.bottom - box.top + 12 }, clip);
    this.drawAxes(yTicks, labels);
    const inside = svg("g", { "clip-path": `url(#${this.id}-clip)` }, this.canvas);
    this.drawShade(inside);
    let rightY = y;
    if (right) {
      const [r0, r1] = this.rangeAlongY(true, x0, x1);
      rightY = (value) => box.bottom - ((value - r0) / (r1 - r0)) * (box.bottom - box.top);
      this.drawRightAxis(r0, r1, rightY);
    }
    this.lanes = new Map(this.visible.map((one) => [one, one.right ? rightY : y]));
    // Bands are drawn before lines, so that no band covers a line.
    const [ground, lines] = [svg("g", {}, inside), svg("g", {}, inside)];
    for (const one of this.visible) {
      const group = (parent) => svg("g", { class: `series s${one.tone}` }, parent);
      this.drawSeries(group(ground), group(lines), one, x, this.lanes.get(one));
    }
    this.overlay = svg("g", { "clip-path": `url(#${this.id}-clip)` }, this.canvas);
    this.reset.hidden = this.zoom === null;
    this.plot.dataset.range = [x0, x1, y0, y1].map((value) => value.toPrecision(6)).join(" ");
    if (this.cursor !== null) this.point(this.cursor, null, false);
    if (!this.visible.some((one) => (one.y ?? one.many?.[0] ?? []).some(known))) {
      svg("text", { class: "nothing", x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2, "text-anchor": "middle" }, this.canvas)
        .textContent = this.visible.length ? "no values yet" : "all series are hidden";
    }
  }

  drawAxes(yTicks, labels) {
    const { box, x0, x1, x, y, height } = this.frame;
    const grid = svg("g", { class: "grid" }, this.canvas);
    const text = svg("g", { class: "axis" }, this.canvas);
    yTicks.at.forEach((at, index) => {
      svg("path", { d: `M${box.left},${y(at).toFixed(1)}H${box.right}`, class: at === 0 ? "zero" : "" }, grid);
      svg("text", { x: box.left - 8, y: y(at) + 4, "text-anchor": "end" }, text).textContent = labels[index];
    });
    const along = ticks(x0, x1, Math.max(2, (box.right - box.left) / 75), this.spec.x.whole);
    for (const at of along.at) {
      svg("path", { d: `M${x(at).toFixed(1)},${box.bottom}v5`, class: "tick" }, grid);
      svg("text", { x: x(at), y: box.bottom + 19, "text-anchor": "middle" }, text).textContent = tickText(at, along.digits);
    }
    svg("path", { d: `M${box.left},${box.bottom}H${box.right}`, class: "base" }, grid);
    svg("text", { x: (box.left + box.right) / 2, y: height - 6, "text-anchor": "middle", class: "name" }, text).textContent = this.spec.x.label;
    const middle = (box.top + box.bottom) / 2;
    svg("text", { x: 13, y: middle, "text-anchor": "middle", class: "name", transform: `rotate(-90 13 ${middle})` }, text).textContent = this.spec.y.label;
  }

  drawRightAxis(low, high, y) {
    const { box, width } = this.frame;
    const text = svg("g", { class: "axis" }, this.canvas);
    const found = ticks(low, high, 4);
    for (const at of found.at) {
      svg("text", { x: box.right + 7, y: y(at) + 4 }, text).textContent = tickText(at, found.digits);
    }
    const middle = (box.top + box.bottom) / 2;
    svg("text", { x: width - 8, y: middle, "text-anchor": "middle", class: "name", transform: `rotate(90 ${width - 8} ${middle})` }, text).textContent = this.spec.right.label;
  }

  drawShade(parent) {
    const { shade } = this.spec;
    if (!shade) return;
    const { box, x, x0 } = this.frame;
    const [from, to] = [Math.max(x(Math.max(shade.from, x0)), box.left), Math.min(x(shade.to), box.right)];
    if (to <= from) return;
    svg("rect", { class: "shade", x: from, y: box.top - 6, width: to - from, height: box.bottom - box.top + 6 }, parent);
    if (to - from > 50) svg("text", { class: "shade-name", x: from + 6, y: box.top + 8 }, parent).textContent = shade.label;
  }

  drawSeries(ground, group, one, x, y) {
    const at = (index, value) => `${x(one.x[index]).toFixed(1)},${y(value).toFixed(1)}`;
    const places = (list) => [...list.keys()].filter((index) => known(list[index]));
    const path = (list) => places(list).map((index) => at(index, list[index])).join("L");
    if (one.steps) {
      const foot = y(0).toFixed(1);
      const top = one.y.map((value, index) => `V${y(value).toFixed(1)}H${x(one.x[index + 1]).toFixed(1)}`).join("");
      svg("path", { class: "bars", d: `M${x(one.x[0]).toFixed(1)},${foot}${top}V${foot}z` }, ground);
      svg("path", { class: "line", d: `M${x(one.x[0]).toFixed(1)},${foot}${top}V${foot}`, "stroke-dasharray": DASHES[one.dash ?? 0] }, group);
      return;
    }
    for (const list of one.many ?? []) {
      const drawn = path(list);
      svg("path", { class: "thin", d: drawn.includes("L") ? `M${drawn}` : drawn ? `M${drawn}h0` : "" }, ground);
    }
    if (one.many) return;
    const banded = one.low ? places(one.low) : [];
    if (banded.length > 1) {
      const up = banded.map((index) => at(index, one.high[index]));
      const down = banded.map((index) => at(index, one.low[index])).reverse();
      svg("path", { class: "band", d: `M${[...up, ...down].join("L")}z` }, ground);
    }
    const drawn = path(one.y);
    if (drawn) svg("path", { class: one.strong ? "line strong" : "line", d: `M${drawn}`, "stroke-dasharray": DASHES[one.dash ?? 0] }, group);
    const inSight = places(one.y).filter((index) => one.x[index] >= this.frame.x0 && one.x[index] <= this.frame.x1);
    const every = Math.ceil(inSight.length / MOST_MARKERS);
    inSight.forEach((index, rank) => {
      if (inSight.length > 1 && (!known(one.marker) || rank % every)) return;
      svg("path", { class: "mark", d: MARKERS[one.marker ?? 0](3.6), transform: `translate(${at(index, one.y[index]).replace(",", " ")})` }, group);
    });
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
