// The sample browser: sorting, search, filters, and shading by each token's energy term.

const PORTION = 50;
const perToken = (one, energy) => one[`energy_${energy}`] / Math.max(one.tokens.length, 1);
const ordersOf = (energies) => Object.fromEntries([
  ...energies.map((name) => [name, [`E_${name}`, (one) => one[`energy_${name}`]]]),
  ...energies.map((name) => [`${name}-token`, [`E_${name} per token`, (one) => perToken(one, name)]]),
]);

// With `play`, a button at each sample shows where it was drawn.
class Samples {
  constructor(holder, runs, play = null) {
    this.runs = runs;
    this.play = play;
    this.several = runs.length > 1;
    this.all = runs.flatMap((run, index) => run.samples.map((one) => ({ ...one, run: index })));
    if (!this.all.length) {
      const some = runs.some((run) => run.samples_in_all);
      holder.append(html("p", {}, some ? "No samples were asked for." : `No sample has been kept yet: the last of each ${unitOf(runs[0])} is, when the run is finished.`));
      return;
    }
    // The energy of the target, where samples have one of its own.
    this.energies = ["raw", "norm", ...(runs.every((run) => run.order === "target") ? ["target"] : [])];
    this.orders = ordersOf(this.energies);
    this.shown = PORTION;
    this.scales = { raw: this.scale("raw"), norm: this.scale("norm") };
    this.build(holder);
    this.list();
  }

  // Shading covers the 10th to the 98th percentile of the terms, so unlikely tokens stand out.
  scale(name) {
    const terms = this.all.flatMap((one) => one.terms?.[name] ?? []).filter(known).sort((a, b) => a - b);
    if (!terms.length) return null;
    const at = (share) => terms[Math.round(share * (terms.length - 1))];
    return [at(0.1), Math.max(at(0.98), at(0.1) + 1e-9)];
  }

  build(holder) {
    const choice = (label, options, change) => {
      const select = html("select", {}, ...options.map(([value, text]) => html("option", { value }, text)));
      select.addEventListener("change", () => change(select.value));
      return [html("label", {}, html("span", {}, label), select), select];
    };
    const again = () => { this.shown = PORTION; this.open.clear(); this.list(); };
    const search = html("input", { type: "search", id: "search", autocomplete: "off", spellcheck: "false" });
    search.addEventListener("input", again);
    const [order, orderSelect] = choice("Sort by", Object.entries(this.orders).map(([value, [text]]) => [value, text]), again);
    const first = `${this.runs[0].order}${this.runs[0].per_token ? "-token" : ""}`;
    if (first in this.orders) orderSelect.value = first;
    const number = (label, step) => {
      const input = html("input", { type: "number", step, inputmode: "decimal" });
      input.addEventListener("input", again);
      return [html("label", { class: "bound" }, html("span", {}, label), input), input];
    };
    const unit = unitOf(this.runs[0]);
    const [chain, chainInput] = number(`${unit[0].toUpperCase()}${unit.slice(1)}`, "1");
    const [lowest, lowestInput] = number("Energy from", "any");
    const [highest, highestInput] = number("to", "any");
    const [from, fromSelect] = choice("Order", [["1", "lowest first"], ["-1", "highest first"]], again);
    const [runs, runSelect] = choice("Run", [["", "all runs"], ...this.runs.map((run, index) => [String(index), run.label])], again);
    const group = html("input", { type: "checkbox", checked: true });
    group.addEventListener("change", again);
    this.open = new Set(); // groups that are shown in full
    const [shade, shadeSelect] = choice("Shade by", [["norm", "E_norm terms"], ["raw", "E_raw terms"], ["", "nothing"]], () => this.list());
    Object.assign(this, { search, orderSelect, fromSelect, runSelect, shadeSelect, group, chainInput, lowestInput, highestInput });
    this.ramp = html("p", { class: "ramp" });
    this.count = html("p", { class: "count", role: "status" });
    this.body = html("tbody");
    this.more = html("button", { type: "button" }, `Show ${PORTION} more`);
    this.more.addEventListener("click", () => { this.shown += PORTION; this.list(); });
    this.every = html("button", { type: "button" }, "Show all");
    this.every.addEventListener("click", () => { this.shown = Infinity; this.list(); });
    this.tip = html("div", { class: "bubble tip", id: "token-tip", role: "tooltip", hidden: true });
    const heads = [...this.energies.map((name) => `E_${name}`), ...(this.several ? ["run"] : []), unit, clockOf(this.runs[0]), "text"];
    this.sources = this.all.some((one) => one.source !== null);
    if (this.sources) heads.push("source");
    this.named = this.all.some((one) => known(one.name));
    if (this.named) heads.push("parent and mutations");
    const table = html(
      "table", { class: "samples" },
      html("caption", { class: "unseen" }, "Samples with their energies"),
      html("thead", {}, html("tr", {}, ...heads.map((text) => html("th", { scope: "col", class: ["run", "text", "source", "parent and mutations"].includes(text) ? "words" : null }, text)), this.play ? html("td") : "")),
      this.body,
    );
    holder.append(
      html("div", { class: "controls" },
        html("label", { class: "search" }, html("span", {}, "Search"), search), order, from,
        this.several ? runs : "", this.scales.norm ? shade : "", chain, lowest, highest,
        html("label", { class: "tick" }, group, `Group similar samples of a ${unit}`)),
      this.scales.norm ? this.ramp : "", this.count, table,
      html("p", { class: "more" }, this.more, this.every), this.tip,
    );
    this.listen();
  }

  list() {
    const query = this.search.value.trim().toLowerCase();
    const value = this.orders[this.orderSelect.value][1];
    const within = (text, holds) => text === "" || !Number.isFinite(Number(text)) || holds(Number(text));
    const way = Number(this.fromSelect.value);
    const far = (one) => (Number.isFinite(value(one)) && known(one.energy_raw) && known(one.energy_norm) ? way * value(one) : Infinity);
    const found = this.all.filter((one) => (this.runSelect.value === "" || one.run === Number(this.runSelect.value))
      && within(this.chainInput.value, (chain) => one.chain === chain)
      && within(this.lowestInput.value, (least) => value(one) >= least)
      && within(this.highestInput.value, (most) => value(one) <= most)
      && (!query || one.text.toLowerCase().includes(query) || [one.source, one.name, (one.mutations ?? []).join(" ")].some((text) => (text ?? "").toLowerCase().includes(query))));
    found.sort((one, other) => (far(one) < far(other) ? -1 : far(one) > far(other) ? 1 : 0));
    const groups = new Map(); // in the order of their first samples
    for (const [index, one] of found.entries()) {
      const key = this.group.checked ? `${one.run} ${one.group}` : index;
      if (groups.has(key)) groups.get(key).push(one); else groups.set(key, [one]);
    }
    const shown = [...groups].slice(0, this.shown);
    this.body.replaceChildren(...shown.flatMap(([key, [first, ...others]]) => [
      this.row(first, others.length ? this.similar(key, others.length) : ""),
      ...(this.open.has(key) ? others.map((one) => this.row(one, "", "other")) : []),
    ]));
    const all = found.length < this.all.length ? `${found.length} found among ${this.all.length}` : `${this.all.length}`;
    this.count.textContent = groups.size < found.length
      ? `${shown.length} of ${groups.size} group${groups.size === 1 ? "" : "s"} of ${all} samples` : `${shown.length} of ${all} samples`;
    this.more.hidden = this.every.hidden = shown.length >= groups.size;
    const scale = this.scales[this.shadeSelect.value];
    this.ramp.hidden = !scale;
    if (scale) {
      this.ramp.replaceChildren("term of a token: ", html("span", {}, scale[0].toFixed(1).replace("-", "−")), html("span", { class: "bar-of-shades", "aria-hidden": "true" }), html("span", {}, scale[1].toFixed(1).replace("-", "−")), " (likely to unlikely)");
    }
  }

  // The button that shows the rest of a group, or hides it.
  similar(key, count) {
    const open = this.open.has(key);
    const button = html("button", { type: "button", class: "similar", "aria-expanded": String(open) }, `+ ${count} similar`);
    button.addEventListener("click", () => {
      if (!this.open.delete(key)) this.open.add(key);
      const at = [...this.body.querySelectorAll(".similar")].indexOf(button);
      this.list();
      this.body.querySelectorAll(".similar")[at].focus();
    });
    return button;
  }

  row(one, beside = "", kind = null) {
    const cell = (text, kind, label) => html("td", { class: kind, "data-label": label }, text);
    const run = this.runs[one.run];
    let button = "";
    if (this.play && one.epoch <= run.epochs_done) {
      button = html("button", { type: "button", class: "play", "aria-label": `Play chain ${one.chain}, epoch ${one.epoch}` }, "Play");
      button.addEventListener("click", () => this.play(one.chain, one.epoch - 1));
    }
    return html(
      "tr", { class: kind },
      ...this.energies.map((name) => {
        const energy = one[`energy_${name}`];
        return cell(known(energy) ? energy.toFixed(2).replace("-", "−") : "–", "number", `E_${name}`);
      }),
      this.several ? html("td", { class: "run", "data-label": "run" }, html("span", { class: `key s${one.run % 7}` }), run.label) : "",
      cell(String(one.chain), "number", unitOf(run)),
      cell(String(one.epoch), "number", clockOf(run)),
      html("td", { class: "text" }, ...this.text(one), beside ? " " : "", beside),
      this.sources ? html("td", { class: "source" }, one.source ?? "") : "",
      this.named ? html("td", { class: "source" }, html("strong", {}, one.name ?? ""), ` ${(one.mutations ?? []).join(" ")}`) : "",
      this.play ? html("td", {}, button) : "",
    );
  }

  text(one) {
    const name = this.shadeSelect.value;
    const scale = this.scales[name];
    if (!one.terms || !scale) return [one.text];
    const parts = one.token_spans ?? one.tokens.map((token, index) => (index ? ` ${token}` : token));
    return parts.flatMap((part, index) => {
      // The space before a token is not shaded.
      const space = part.slice(0, part.length - part.trimStart().length);
      const span = html("span", { class: "token", tabindex: index ? "-1" : "0" }, part.trimStart());
      span.style.setProperty("--term", clamp((one.terms[name][index] - scale[0]) / (scale[1] - scale[0]), 0, 1).toFixed(3));
      span.dataset.told = `${one.tokens[index]}   E_raw ${shortNumber(one.terms.raw[index])}   E_norm ${shortNumber(one.terms.norm[index])}`;
      return [space, span];
    });
  }

  listen() {
    let told = null;
    const place = () => {
      if (!told) return;
      const at = told.getBoundingClientRect();
      this.tip.style.left = `${clamp(at.left, 4, Math.max(4, innerWidth - this.tip.offsetWidth - 4))}px`;
      this.tip.style.top = `${at.top > 100 ? at.top - this.tip.offsetHeight - 6 : at.bottom + 6}px`;
    };
    const hide = () => {
      this.tip.hidden = true;
      told?.removeAttribute("aria-describedby");
      told = null;
    };
    const tell = (event) => {
      const token = event.target.closest?.(".token");
      hide();
      if (!token) return;
      told = token;
      token.setAttribute("aria-describedby", "token-tip");
      this.tip.textContent = token.dataset.told;
      this.tip.hidden = false;
      place();
    };
    this.body.addEventListener("mouseover", tell);
    this.body.addEventListener("mouseleave", hide);
    this.body.addEventListener("focusin", tell);
    this.body.addEventListener("focusout", hide);
    // The tab key stops once per sample; arrow keys move between tokens.
    this.body.addEventListener("keydown", (event) => {
      const token = event.target.closest?.(".token");
      if (event.key === "Escape") hide();
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!token || !step) return;
      const tokens = [...token.parentElement.querySelectorAll(".token")];
      const next = tokens[tokens.indexOf(token) + step];
      if (!next) return;
      event.preventDefault();
      token.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
    addEventListener("scroll", place, { passive: true });
  }
}
