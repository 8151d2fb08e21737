// Draws series into an SVG: axes, grid, bands, lines, markers, histograms.
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

class Drawing {
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
    // A name of the shade stands above the plot, where no line covers it.
    const box = { left, top: spec.shade ? 24 : 12, right: width - (right ? 52 : 14), bottom: height - 44 };
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
    svg("text", { class: "shade-name", x: from, y: box.top - 10 }, this.canvas).textContent = shade.label;
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
}
