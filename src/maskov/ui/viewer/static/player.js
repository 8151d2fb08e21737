// Plays a chain: recorded epochs, replayed steps.

const SPEEDS = [0.5, 1, 2, 4, 8];
const SETTLE = 250; // a slider that is being dragged asks for nothing until it rests
const ICONS = {
  first: "M4,4h3v16h-3zM20,4v16L9,12z",
  back: "M17,4v16L6,12z",
  play: "M6,3v18L20,12z",
  pause: "M5,4h5v16h-5zM14,4h5v16h-5z",
  forward: "M7,4v16L18,12z",
  next: "M17,4h3v16h-3zM4,4v16L15,12z",
};

const putIcon = (button, name) => {
  const icon = svg("svg", { viewBox: "0 0 24 24", width: 18, height: 18, "aria-hidden": "true", focusable: "false" });
  svg("path", { d: ICONS[name] }, icon);
  button.replaceChildren(icon);
};

// Shows what a term of the table means while it is pointed at or has the focus.
const explain = (term) => {
  const tip = byId(term.getAttribute("aria-describedby"));
  const show = () => {
    const { left, top } = term.getBoundingClientRect();
    tip.classList.add("shown");
    tip.style.left = `${clamp(left, 8, Math.max(8, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.max(8, top - tip.offsetHeight - 8)}px`;
  };
  const hide = () => tip.classList.remove("shown");
  for (const event of ["mouseenter", "focus"]) term.addEventListener(event, show);
  for (const event of ["mouseleave", "blur"]) term.addEventListener(event, hide);
  term.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });
  addEventListener("scroll", hide, { passive: true });
};

class Player {
  constructor(run, place) {
    this.run = run;
    this.replays = new Map(); // epoch -> promise of its steps
    this.replay = null;
    this.timer = null;
    this.chain = place.chain;
    this.epoch = place.epoch;
    this.step = place.step;
    for (const name of ["first", "back", "forward", "next"]) putIcon(byId(name), name);
    putIcon(byId("toggle"), "play");
    byId("chain").max = run.chains - 1;
    byId("speed").append(...SPEEDS.map((speed) => html("option", { value: speed, selected: speed === 1 }, `${speed} step${speed === 1 ? "" : "s"}/s`)));
    byId("epoch").max = run.epochs_done;
    this.listen();
  }

  async open() {
    byId("play-said").textContent = "Loading the model and the chain …";
    this.recorded = await ask(`runs/${this.run.id}/chains/${this.chain}`);
    byId("player").hidden = false;
    byId("play-said").textContent = "";
    byId("chain").value = this.chain;
    byId("source").hidden = !known(this.recorded.source);
    byId("source").textContent = known(this.recorded.source) ? `Source: ${this.recorded.source}` : "";
    this.replays.clear();
    if (this.epoch === null) await this.goToFirstChange();
    else await this.go(this.epoch, this.step);
  }

  // An epoch may begin with many steps that change nothing.
  async goToFirstChange() {
    const epoch = Math.max(this.recorded.novel.findIndex((count) => count > 0), 0);
    await this.go(epoch);
    const changed = (this.replay?.steps ?? []).findIndex((step) => step.accepted && !step.repeated);
    if (this.replay?.epoch !== epoch || changed < 0) return;
    this.step = changed + 1;
    this.draw();
  }

  steps(epoch) {
    if (!this.replays.has(epoch)) {
      const asked = ask(`runs/${this.run.id}/chains/${this.chain}/epochs/${epoch}`);
      asked.catch(() => this.replays.delete(epoch));
      this.replays.set(epoch, asked);
    }
    return this.replays.get(epoch);
  }

  // Shows an epoch from one of its steps on; a negative step counts from the end.
  async go(epoch, step = 0) {
    const { chain } = this;
    this.epoch = clamp(epoch, 0, this.run.epochs_done - 1);
    this.showRecorded();
    try {
      const replay = await this.steps(this.epoch);
      if (chain !== this.chain || replay.epoch !== this.epoch) return; // somebody went elsewhere
      this.replay = replay;
      this.before = this.sequences(replay);
      this.step = clamp(step < 0 ? replay.steps.length + 1 + step : step, 0, replay.steps.length);
      this.showSteps();
      this.draw();
      if (this.epoch + 1 < this.run.epochs_done && this.timer) this.steps(this.epoch + 1).catch(() => {});
    } catch (error) {
      this.pause();
      byId("play-said").textContent = error.message;
    }
  }

  // The sequence at the end of an epoch is recorded; its steps must be replayed first.
  showRecorded() {
    byId("epoch").value = this.epoch + 1;
    byId("epoch-said").textContent = `${this.epoch + 1} of ${this.run.epochs_done}`;
    byId("epoch").setAttribute("aria-valuetext", `epoch ${this.epoch + 1} of ${this.run.epochs_done}`);
    const { recorded } = this;
    const energies = ["raw", "norm"].filter((name) => known(recorded[`energy_${name}`][this.epoch])).map((name) => `E_${name} ${fixed(recorded[`energy_${name}`][this.epoch], 2)}`);
    const experts = Object.entries(recorded.experts).filter(([, values]) => known(values[this.epoch])).map(([name, values]) => `${name} ${fixed(values[this.epoch], 2)}`);
    byId("ended").textContent = `At the end of this epoch: ${[...energies, ...experts, `${recorded.accepted[this.epoch]} of ${recorded.steps[this.epoch]} steps accepted`].join(" · ")}`;
    if (this.replay?.epoch === this.epoch && this.replay?.chain === this.chain) return;
    this.replay = null;
    this.drawWords(recorded.texts[this.epoch], null, []);
    byId("decision").className = "decision waiting";
    byId("decision").replaceChildren(html("p", {}, "The sequence at the end of this epoch. Replaying its steps …"));
    byId("steps").replaceChildren();
    byId("agreement").textContent = "";
  }

  showSteps() {
    const { replay } = this;
    byId("step").max = replay.steps.length;
    byId("steps").replaceChildren(...replay.steps.map((step, index) => this.stepRow(step, index + 1)));
    byId("agreement").className = replay.agrees ? "agreement good" : "agreement bad";
    byId("agreement").textContent = replay.agrees
      ? "✓ Replayed from the record with the run’s own random numbers; it ends in the tokens that were recorded, and rejects where they were rejected."
      : "✗ This replay does not end where the record does. On another machine, or in other batches, rounding can flip a close decision: these are not exactly the run’s steps.";
  }

  stepRow(step, number) {
    const { word, sign, tone } = outcome(step);
    const button = html("button", { type: "button", class: "small-button", "aria-label": `Show step ${number}` }, String(number));
    button.addEventListener("click", () => { this.pause(); this.step = number; this.draw(true); });
    const last = step.tests[step.tests.length - 1];
    return html(
      "tr", {},
      html("td", {}, button),
      html("td", { "data-label": "position" }, step.start !== null ? `from ${step.start + 1}` : step.positions.map((place) => place + 1).join(", ")),
      html("td", { class: "words proposed" }, step.parts.map(({ from, to }) => (step.repeated ? from : `${from || "nothing"} → ${to || "nothing"}`)).join(", ")),
      html("td", { class: `words result ${tone}` }, `${sign} ${word}`),
      html("td", { "data-label": "log u", class: last ? null : "untested" }, last ? fixed(Math.log(last.uniform), 2) : "–"),
      html("td", { "data-label": "limit", class: last ? null : "untested" }, last ? fixed(last.log_threshold, 2) : "–"),
    );
  }

  // The words of the epoch just before each step, and at its end.
  sequences(replay) {
    let changes = 0;
    return [replay.texts[0], ...replay.steps.map(({ accepted, repeated }) => {
      if (accepted && !repeated) changes += 1;
      return replay.texts[changes];
    })];
  }

  draw(speak = false) {
    const { replay } = this;
    const step = this.step ? replay.steps[this.step - 1] : null;
    const parts = step?.parts ?? [];
    this.drawWords(this.before[Math.max(this.step - 1, 0)], step, parts);
    drawDecision(byId("decision"), replay, step, parts);
    byId("step").value = this.step;
    byId("step-said").textContent = `${this.step} of ${replay.steps.length}`;
    byId("step").setAttribute("aria-valuetext", `step ${this.step} of ${replay.steps.length}`);
    [...byId("steps").children].forEach((row, index) => {
      if (index + 1 === this.step) row.setAttribute("aria-current", "step");
      else row.removeAttribute("aria-current");
    });
    const current = byId("steps").querySelector("[aria-current]");
    const box = byId("steps").closest(".scroll");
    if (current && box.scrollHeight > box.clientHeight) box.scrollTop = current.offsetTop - box.clientHeight / 2;
    byId("back").disabled = this.step === 0 && this.epoch === 0;
    byId("forward").disabled = this.atEnd();
    byId("next").disabled = this.epoch + 1 >= this.run.epochs_done;
    if (speak && !this.timer) byId("spoken").textContent = inWords(replay, step, parts);
    const place = new URLSearchParams({ id: this.run.id, chain: this.chain, epoch: this.epoch + 1, step: this.step });
    history.replaceState(null, "", `?${place}${location.hash}`);
  }

  drawWords(words, step, parts) {
    const holder = byId("sentence");
    holder.replaceChildren();
    words.forEach((word, place) => {
      const part = parts.find(({ first, last }) => place >= first && (place < last || place === first));
      if (part?.first === place) this.drawPart(holder, step, part);
      if (part && place < part.last) return;
      const text = word.trimStart();
      if (text !== word) holder.append(" ");
      const frozen = this.recorded.free[place] === false;
      holder.append(html("span", { class: frozen ? "token frozen" : "token", title: `position ${place + 1}${frozen ? ", frozen" : ""}` }, text));
    });
    const added = parts.find(({ first }) => first >= words.length);
    if (added) this.drawPart(holder, step, added);
  }

  // Words that a step would replace by others.
  drawPart(holder, step, { first, last, from, to, space }) {
    const { sign, tone } = outcome(step);
    const same = from === to;
    const where = last - first > 1 ? `positions ${first + 1} to ${last}` : `position ${first + 1}`;
    holder.append(space ? " " : "", html(
      "span", { class: `token slot ${tone}`, title: where },
      from ? html(step.accepted && !same ? "del" : "span", { class: "old" }, from) : "",
      to && !same ? html(step.accepted ? "ins" : "del", { class: "new" }, to) : "",
      html("span", { class: "sign", "aria-hidden": "true" }, sign),
    ));
  }

  atEnd() { return this.replay && this.step >= this.replay.steps.length && this.epoch + 1 >= this.run.epochs_done; }

  async forward(speak) {
    if (!this.replay) return;
    if (this.step < this.replay.steps.length) { this.step += 1; this.draw(speak); return; }
    if (!this.atEnd()) await this.go(this.epoch + 1, 1);
  }

  async back() {
    if (!this.replay) return;
    if (this.step > 0) { this.step -= 1; this.draw(true); } else if (this.epoch > 0) await this.go(this.epoch - 1, -1);
  }

  play() {
    if (this.atEnd()) return;
    putIcon(byId("toggle"), "pause");
    byId("toggle").setAttribute("aria-label", "Pause");
    const tick = async () => {
      await this.forward(false);
      if (!this.timer) return;
      if (this.atEnd()) { this.pause(); return; }
      this.timer = setTimeout(tick, 1000 / Number(byId("speed").value));
    };
    this.timer = setTimeout(tick, 0);
  }

  pause() {
    clearTimeout(this.timer);
    this.timer = null;
    putIcon(byId("toggle"), "play");
    byId("toggle").setAttribute("aria-label", "Play");
  }

  turn(epochs) {
    this.pause();
    this.go(this.epoch + epochs);
  }

  async jump(chain, epoch, step = 0) {
    this.pause();
    const other = chain !== this.chain;
    Object.assign(this, { chain, epoch, step });
    try {
      if (other) await this.open(); else await this.go(epoch, step);
    } catch (error) {
      byId("play-said").textContent = error.message;
    }
  }

  listen() {
    const act = (id, done) => byId(id).addEventListener("click", () => { if (id !== "toggle") this.pause(); done(); });
    act("first", () => { if (this.replay) { this.step = 0; this.draw(true); } });
    act("back", () => this.back());
    act("toggle", () => (this.timer ? this.pause() : this.play()));
    act("forward", () => this.forward(true));
    act("next", () => this.turn(1));
    byId("chain").addEventListener("change", () => {
      const chain = byId("chain").value === "" ? this.chain : clamp(Math.round(Number(byId("chain").value)), 0, this.run.chains - 1);
      byId("chain").value = chain;
      this.jump(chain, this.epoch);
    });
    byId("step").addEventListener("input", () => {
      this.pause();
      if (this.replay) { this.step = Number(byId("step").value); this.draw(true); }
    });
    let waiting = null;
    byId("epoch").addEventListener("input", () => {
      this.pause();
      this.epoch = Number(byId("epoch").value) - 1;
      this.showRecorded();
      clearTimeout(waiting);
      waiting = setTimeout(() => this.go(this.epoch), SETTLE);
    });
    document.addEventListener("keydown", (event) => this.key(event));
    document.querySelectorAll(".term").forEach(explain);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || byId("player").hidden) return;
    // Fields, charts and scrolling boxes use these keys themselves, as does the page when the player
    // is out of sight.
    if (event.target.closest("input, select, textarea, summary, .plot, .scroll")) return;
    const { top, bottom } = byId("sentence").getBoundingClientRect();
    if (bottom < 0 || top > innerHeight) return;
    if (event.key === " " && event.target.closest("button, a")) return;
    const acts = {
      " ": () => byId("toggle").click(),
      ArrowRight: () => (event.shiftKey ? this.turn(1) : byId("forward").click()),
      ArrowLeft: () => (event.shiftKey ? this.turn(-1) : byId("back").click()),
      Home: () => byId("first").click(),
      End: () => { this.pause(); if (this.replay) { this.step = this.replay.steps.length; this.draw(true); } },
    };
    if (!Object.hasOwn(acts, event.key)) return;
    event.preventDefault();
    acts[event.key]();
  }
}
