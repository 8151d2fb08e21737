// The samples of a run, searched, filtered, sorted and paged by the server.

const PORTION = 25;
const WAIT = 200;

class SampleList {
  constructor(run, play) {
    this.run = run;
    this.play = play;
    this.form = byId("filter");
    this.asked = 0;
    let waiting = null;
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("input", () => {
      clearTimeout(waiting);
      waiting = setTimeout(() => this.load(0), WAIT);
    });
    byId("more").addEventListener("click", () => this.load(byId("found").children.length));
    this.load(0);
  }

  query(offset) {
    const given = new URLSearchParams({ offset, limit: PORTION });
    for (const field of this.form.elements) {
      if (field.name && field.value !== "" && field.checkValidity()) given.set(field.name, field.value);
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
      const shown = byId("found").children.length;
      byId("more").hidden = shown >= answer.found;
      byId("count").textContent = answer.in_all === 0
        ? "No samples were kept yet."
        : `${answer.found.toLocaleString("en")} of ${answer.in_all.toLocaleString("en")} samples${shown < answer.found ? `, the first ${shown} shown` : ""}`;
    } catch (error) {
      byId("count").textContent = error.message;
    }
  }

  row(one) {
    const button = this.play && one.epoch < this.run.epochs_done
      ? html("button", { type: "button", class: "small-button", "aria-label": `Play chain ${one.chain}, epoch ${one.epoch + 1}` }, "Play") : "";
    if (button) button.addEventListener("click", () => this.play(one.chain, one.epoch));
    return html(
      "tr", {},
      html("td", { "data-label": "E_raw" }, fixed(one.energy_raw, 2)),
      html("td", { "data-label": "E_norm" }, fixed(one.energy_norm, 2)),
      html("td", { "data-label": "chain" }, String(one.chain)),
      html("td", { "data-label": "epoch" }, String(one.epoch + 1)),
      html("td", { class: "words" }, one.text, known(one.source) ? html("span", { class: "source" }, one.source) : ""),
      html("td", {}, button),
    );
  }
}
