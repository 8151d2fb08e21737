// The samples of a run, searched, filtered, sorted and paged by the server.

const PORTION = 25;
const WAIT = 200;

class SampleList {
  constructor(run, play) {
    this.run = run;
    this.play = play;
    this.form = byId("filter");
    // The target's own energy, and per token where lengths differ.
    const order = run.order === "norm" ? "norm" : "raw";
    this.form.sort.value = run.per_token ? `${order}_per_token` : `energy_${order}`;
    this.asked = 0;
    let waiting = null;
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.load(0), WAIT);
    });
    byId("more").addEventListener("click", () => this.load(this.shown));
    this.load(0);
  }

  query(offset) {
    const given = new URLSearchParams({ offset, limit: PORTION });
    for (const field of this.form.elements) {
      if (field.type === "checkbox") given.set(field.name, field.checked);
      else if (field.name && field.value !== "" && field.checkValidity()) given.set(field.name, field.value);
    }
    return given;
  }

  async load(offset) {
    this.asked += 1;
    const mine = this.asked;
    this.form.lowest.labels[0].firstChild.textContent = this.form.sort.value.includes("norm") ? "E_norm from" : "E_raw from";
    try {
      const answer = await ask(`runs/${this.run.id}/samples?${this.query(offset)}`);
      if (mine !== this.asked) return; // a later request is pending
      if (!offset) byId("found").replaceChildren();
      byId("found").append(...answer.samples.map((one) => this.row(one)));
      this.shown = offset + answer.samples.length;
      byId("more").hidden = this.shown >= answer.rows;
      const grouped = answer.rows < answer.found ? ` in ${answer.rows.toLocaleString("en")} group${answer.rows === 1 ? "" : "s"}` : "";
      byId("count").textContent = answer.in_all === 0
        ? "No samples were kept yet."
        : `${answer.found.toLocaleString("en")} of ${answer.in_all.toLocaleString("en")} samples${grouped}${this.shown < answer.rows ? `, the first ${this.shown} shown` : ""}`;
    } catch (error) {
      byId("count").textContent = error.message;
    }
  }

  // A button that shows the other samples of a group below the first.
  others(one) {
    if (!one.similar) return "";
    const button = html("button", { type: "button", class: "small-button similar", "aria-expanded": "false" }, `+ ${one.similar} similar`);
    let rows = null;
    button.addEventListener("click", async () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      if (!open) { rows?.forEach((row) => row.remove()); return; }
      const query = this.query(0);
      for (const [name, value] of Object.entries({ grouped: false, group: one.group, limit: 200 })) query.set(name, value);
      try {
        const { samples } = await ask(`runs/${this.run.id}/samples?${query}`);
        rows = samples.filter(({ epoch }) => epoch !== one.epoch).map((other) => this.row(other));
        rows.forEach((row) => row.classList.add("other"));
        if (button.getAttribute("aria-expanded") === "true") button.closest("tr")?.after(...rows);
      } catch (error) {
        byId("count").textContent = error.message;
      }
    });
    return button;
  }

  row(one) {
    const button = this.play && one.epoch < this.run.epochs_done
      ? html("button", { type: "button", class: "small-button", "aria-label": `Play chain ${one.chain}, epoch ${one.epoch + 1}` }, "Play") : "";
    if (button) button.addEventListener("click", () => this.play(one.chain, one.epoch));
    return html(
      "tr", {},
      html("td", { "data-label": "E_raw" }, fixed(one.energy_raw, 2)),
      html("td", { "data-label": "E_norm" }, fixed(one.energy_norm, 2)),
      html("td", { "data-label": unitOf(this.run) }, String(one.chain)),
      html("td", { "data-label": clockOf(this.run) }, String(one.epoch + 1)),
      html("td", { class: "words" }, one.text, one.similar ? " " : "", this.others(one), known(one.source) ? html("span", { class: "source" }, one.source) : ""),
      html("td", {}, button),
    );
  }
}
