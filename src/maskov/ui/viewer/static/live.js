// A live run: its chains, energies and speed.

const PAUSE = 200;
const LONG_PAUSE = 2000;
let drawn = null;
let mayStart = false;
let chart = null;
let shownId = null;
const before = new Map(); // chain -> words of the frame before

const drawChain = ({ chain, energy, words }) => {
  const old = before.get(chain);
  const line = html("span", { class: "text" });
  words.forEach((word, index) => {
    const text = word.trimStart();
    if (text !== word) line.append(" ");
    const fresh = old && old.words[index]?.trimStart() !== text;
    line.append(html("span", { class: fresh ? "word fresh" : "word" }, text));
  });
  const value = known(energy) ? energy : old?.energy ?? null;
  before.set(chain, { words, energy: value });
  return html(
    "li", {}, html("span", { class: "who" }, `chain ${chain}`),
    html("span", { class: "energy" }, known(value) ? fixed(value, 1) : ""), line,
  );
};

const drawEnergies = (seen) => {
  const epochs = seen.energy_raw.map((_, index) => index + 1);
  if (!chart) {
    byId("energies").hidden = false;
    chart = ["raw", "norm"].map((name, tone) => new Chart(byId("charts"), {
      title: `Mean E_${name} by epoch`, x: { label: "epoch", whole: true }, y: { label: `E_${name}` },
      series: [{ name: "mean over chains", tone: 2 * tone, x: [], y: [], strong: true }],
    }));
  }
  chart.forEach((one, index) => {
    Object.assign(one.spec.series[0], { x: epochs, y: index ? seen.energy_norm : seen.energy_raw });
    one.draw();
  });
};

const draw = (seen) => {
  if (seen.id !== shownId) { shownId = seen.id; before.clear(); }
  const { request } = seen;
  byId("title").textContent = seen.title;
  byId("settings").textContent = `${request.model} · ${request.method}${request.method === "mh" ? ` · E_${request.energy}` : ""} · ${request.chains} chains ${request.text ? "from a text" : `of ${request.length} tokens`}${request.freeze ? `, frozen: ${request.freeze}` : ""}${request.prefix ? ` · after “${request.prefix}”` : ""} · ${request.epochs} epochs · seed ${request.seed}`;
  const state = seen.status[0].toUpperCase() + seen.status.slice(1);
  if (byId("state").textContent !== state) byId("state").textContent = byId("spoken").textContent = state;
  byId("message").textContent = seen.message;
  byId("progress").parentElement.hidden = false;
  byId("progress").max = request.epochs;
  byId("progress").value = seen.epoch;
  byId("stop").hidden = !seen.running;
  byId("start").hidden = seen.running || !mayStart;
  byId("open").hidden = seen.running || !seen.saved;
  byId("open").href = `run?id=${seen.id}`;
  byId("figures").replaceChildren(
    card("epoch", `${seen.epoch} / ${request.epochs}`),
    card("accepted", percent(seen.accepted)), card("novel", percent(seen.novel)),
    card("passes per second", known(seen.per_second) ? Math.round(seen.per_second).toLocaleString("en") : "–"),
    card("time left", seen.running ? duration(seen.seconds_left) : "–"),
  );
  byId("notes").replaceChildren(...seen.notes.map((note) => html("li", {}, note)));
  byId("chains").replaceChildren(...seen.chains.map(drawChain));
  if (seen.energy_raw.length) drawEnergies(seen);
};

const showIdle = () => {
  byId("state").textContent = mayStart ? "Start a run and watch its chains" : "This server starts no runs";
  byId("start").hidden = !mayStart;
  byId("progress").parentElement.hidden = true;
};

const watch = async () => {
  let pause = PAUSE;
  try {
    const seen = await ask("live");
    const now = [seen.id, seen.status, seen.epoch].join(" ");
    if (seen.status === "none") showIdle();
    else if (now !== drawn) draw(seen); // what changed in an epoch is marked until the next
    drawn = now;
    if (byId("stop").hidden) pause = LONG_PAUSE;
    document.documentElement.dataset.ready = "true";
  } catch (error) {
    byId("state").textContent = error.message;
    pause = LONG_PAUSE;
  }
  setTimeout(watch, document.hidden ? LONG_PAUSE : pause);
};

byId("stop").addEventListener("click", async () => {
  byId("stop").disabled = true;
  try {
    await ask("live/stop", {});
  } catch (error) {
    byId("message").textContent = error.message;
  }
  byId("stop").disabled = false;
});

ask("choices").then((offered) => { mayStart = offered.may_start; }, () => {}).then(watch);
