// The page of a run: overview and charts, the player, and the samples.

const NAMES = { raw: "E_raw", norm: "E_norm" };

const showHead = (run) => {
  document.title = `${run.title} – maskov`;
  byId("title").textContent = run.title;
  const found = run.verdict;
  const verdict = html(
    "div", { class: `verdict ${found.tone}` },
    html("p", {}, html("strong", {}, `${found.headline}.`)),
    html("p", {}, pill(found.state, found.tone), run.finished ? "" : pill("not finished", "open"), html("span", {}, found.reason)),
    found.advice ? html("p", {}, `Try next: ${found.advice}`) : "",
  );
  const cards = Object.entries(run.numbers).map(([name, shown]) => {
    const [value, error] = shown.split(" ± ");
    return card(name, value, error ? `± ${error}` : "");
  });
  byId("title").after(verdict, html("dl", { class: "cards" }, ...cards), html("ul", { class: "notes" }, ...run.notes.map((note) => html("li", {}, note))));
  byId("run-said").textContent = "";
  document.querySelectorAll("[data-unit]").forEach((one) => { one.textContent = unitOf(run); });
  document.querySelectorAll("[data-clock]").forEach((one) => { one.textContent = clockOf(run); });
};

const showCharts = (run) => {
  const shade = shadeOf(run);
  const x = { label: clockOf(run), whole: true };
  const traces = [...Object.entries(NAMES).map(([name, label]) => [`${label}${run.per_token ? " per token" : ""}`, run.energies[name]]), ...Object.entries(run.experts)];
  for (const [index, [label, trace]] of traces.entries()) {
    new Chart(byId("charts"), {
      title: `${label} by ${clockOf(run)}`, series: energySeries(run, trace, (2 * index) % 7), shade, x, y: { label },
      right: run.temperature ? { label: "target temperature" } : null,
    });
  }
  new Chart(byId("charts"), {
    title: `Accepted and novel by ${clockOf(run)}`, wide: true, shade, x, y: { label: "share of steps", include: [0, 1] },
    caption: `Shares of steps over all ${unitOf(run)}s. Novel: accepted and different.`,
    series: [["accepted", 0, 0], ["novel", 2, 1]].map(([name, tone, dash]) => ({ name, tone, dash, marker: dash, x: run.epochs, y: run[name].middle })),
  });
};

const showAbout = (run) => {
  byId("metadata").append(...Object.entries(run.metadata).map(([name, value]) => html("div", {}, html("dt", {}, name), html("dd", {}, value))));
  byId("signature").textContent = run.signature;
  byId("report").href = `report?id=${run.id}`;
  byId("mixing").append(...run.tables.map(({ caption, head, rows }) => html(
    "div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption },
    html("table", {}, html("caption", {}, caption),
      html("thead", {}, html("tr", {}, ...head.map((name) => (name ? html("th", { scope: "col" }, name) : html("td"))))),
      html("tbody", {}, ...rows.map(([name, ...cells]) => html("tr", {}, html("th", { scope: "row" }, name), ...cells.map((cell) => html("td", {}, cell)))))),
  )));
};

const whole = (text, least, most) => clamp(Number.parseInt(text ?? "", 10) || least, least, most);

const startPage = async () => {
  const asked = new URLSearchParams(location.search);
  let run;
  try {
    run = await ask(`runs/${encodeURIComponent(asked.get("id") ?? "")}`);
  } catch (error) {
    byId("title").textContent = "No such run";
    byId("run-said").textContent = error.message;
    document.documentElement.dataset.ready = "true";
    return;
  }
  showHead(run);
  byId("whole").hidden = false;
  showAbout(run);
  let player = null;
  const why = run.why_not_played ?? (run.epochs_done ? null : "no epoch is complete yet");
  if (why) byId("play-said").textContent = `This run cannot be played: ${why}.`;
  else {
    player = new Player(run, {
      chain: whole(asked.get("chain"), 0, run.chains - 1),
      epoch: asked.has("epoch") || asked.has("step") ? whole(asked.get("epoch"), 1, run.epochs_done) - 1 : null,
      step: whole(asked.get("step"), 0, 1e6),
    });
  }
  new Samples(byId("sample-browser"), [run], player && ((chain, epoch) => {
    byId("play").scrollIntoView();
    player.jump(chain, epoch, -1);
  }));
  if (run.epochs_done) showCharts(run); else byId("energies").hidden = true;
  document.documentElement.dataset.ready = "true";
  try {
    await player?.open();
  } catch (error) {
    byId("play-said").textContent = `This run cannot be played here: ${error.message}`;
  }
};

startPage();
