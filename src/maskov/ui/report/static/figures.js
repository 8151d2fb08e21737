// Which charts a report has.

const data = JSON.parse(document.getElementById("report-data").textContent);
const several = data.runs.length > 1;
const PER = data.runs[0].per_token ? " per token" : "";
const NAMES = { raw: `E_raw${PER}`, norm: `E_norm${PER}` };
const BAND = "The line is the median over chains, the band holds the middle 80 %.";

// Epochs of a population are points of its path; the target is the last of them.
const clock = (run) => (run.particles ? "point of the path" : "epoch");
const burnIn = (run) => (run.burn_in > 0 ? { from: 0, to: run.burn_in + 0.5, label: run.particles ? "before the target" : "burn-in" } : null);

const energyChart = (run, { spread, chains }, label, hue) => {
  const series = [
    { name: chains.length < run.chains ? `${chains.length} of ${run.chains.toLocaleString("en")} chains` : `${chains.length} chains`, tone: hue, x: run.epochs, many: chains, names: run.shown_chains.map((chain) => `chain ${chain}`) },
    { name: "median, 10–90 %", tone: hue, x: run.epochs, y: spread.middle, low: spread.low, high: spread.high, strong: true },
  ];
  if (chains.length === 1) series.splice(0, 2, { ...series[1], name: `chain ${run.shown_chains[0]}`, low: null, high: null });
  if (run.temperature) series.push({ name: "temperature", tone: 1, dash: 1, x: run.epochs, y: run.temperature, right: true });
  return {
    title: `${label} by ${clock(run)}`, series, shade: burnIn(run),
    x: { label: clock(run), whole: true }, y: { label },
    right: run.temperature ? { label: "target temperature" } : null,
    caption: chains.length > 1 ? BAND : "",
  };
};

const rateChart = (run, hue) => ({
  title: `Accepted and novel by ${clock(run)}`,
  caption: "Shares of steps over all chains; bands hold the middle 80 % of the chains. Novel: accepted and different.",
  x: { label: clock(run), whole: true }, y: { label: "share of steps", include: [0, 1] }, shade: burnIn(run),
  series: [["accepted", 0, 0], ["novel", 2, 1]].map(([name, tone, dash]) => ({
    name, tone: hue(tone), dash, marker: dash, x: run.epochs, y: run[name].middle,
    low: run.chains > 1 ? run[name].low : null, high: run.chains > 1 ? run[name].high : null,
  })),
});

const correlationChart = (run, hue) => {
  const found = run.correlations;
  if (!found.length) return null;
  return {
    title: "Autocorrelation by lag",
    caption: "How much of a value is still known so many epochs later; chains that disagree with each other keep it above 0.",
    x: { label: "lag (epochs)", whole: true }, y: { label: "autocorrelation", include: [0, 1] },
    series: found.map((one, index) => ({ name: one.name, tone: hue([0, 2, 1, 3][index]), dash: index, marker: index, x: one.lags, y: one.values })),
  };
};

const positionChart = (run, hue) => {
  const found = run.positions;
  if (!found) return null;
  const over = found.templates > 1 ? ` Over all ${found.templates} lines of input.` : "";
  return {
    title: "Accepted and novel by position", wide: true,
    caption: `Shares of the visits to each position after burn-in.${over}`,
    x: { label: "position", whole: true }, y: { label: "share of visits", include: [0, 1] },
    series: [["accepted", 0, 0], ["novel", 2, 1]].map(([name, tone, dash]) => ({
      name, tone: hue(tone), dash, marker: dash, x: found.positions, y: found[name],
    })),
  };
};

const histogramChart = (name) => {
  const found = data.histograms[name];
  if (!found) return null;
  return {
    title: data.runs.some((run) => run.burn_in) ? `${NAMES[name]} after burn-in` : NAMES[name],
    caption: "Shares of all traced epochs and chains after burn-in.",
    x: { label: NAMES[name] }, y: { label: "share", include: [0] },
    series: data.runs.map((run, index) => ({
      name: several ? run.label : "all chains", tone: index % 7, dash: several ? index % 7 : 0, steps: true, x: found.edges, y: found.shares[index],
    })),
  };
};

const overlaid = (title, label, pick, include) => ({
  title, x: { label: "epoch", whole: true }, y: { label, include },
  series: data.runs.map((run, index) => {
    const { middle, low, high } = pick(run);
    return { name: run.label, tone: index % 7, dash: index % 7, marker: index % 7, x: run.epochs, y: middle, low, high, strong: true };
  }),
});

const comparisonCharts = () => [
  ...Object.keys(NAMES).map((name) => ({ ...overlaid(`${NAMES[name]} by epoch, all runs`, NAMES[name], (run) => run.energies[name].spread), caption: BAND })),
  ...Object.keys(NAMES).map((name) => ({ ...histogramChart(name), title: `${NAMES[name]} after burn-in, all runs` })),
  overlaid("Accepted by epoch, all runs", "share of steps", (run) => run.accepted, [0, 1]),
  overlaid("Novel by epoch, all runs", "share of steps", (run) => run.novel, [0, 1]),
].filter((spec) => spec.series);

const runCharts = (index) => {
  const run = data.runs[index];
  // With several runs, colours distinguish runs; with one, they distinguish quantities.
  const hue = (own) => (several ? index % 7 : own);
  const overEpochs = [
    energyChart(run, run.energies.raw, NAMES.raw, hue(0)),
    energyChart(run, run.energies.norm, NAMES.norm, hue(2)),
    ...Object.entries(run.experts).map(([name, trace], place) => energyChart(run, trace, name, hue((3 + place) % 7))),
    rateChart(run, hue),
  ];
  const specs = [
    ...(run.verdict.state === "independent draws" ? [] : overEpochs),
    correlationChart(run, hue),
    ...(several ? [] : [histogramChart("raw"), histogramChart("norm")]),
    positionChart(run, hue),
  ].filter(known);
  if (!several) return specs;
  return specs.map((spec) => ({ ...spec, title: `${spec.title}: ${run.label}` }));
};

const drawCharts = () => {
  for (const holder of document.querySelectorAll("[data-charts]")) {
    const specs = holder.dataset.charts === "comparison" ? comparisonCharts() : runCharts(Number(holder.dataset.run));
    for (const spec of specs) new Chart(holder, spec);
  }
  for (const holder of document.querySelectorAll("[data-family]")) {
    const index = Number(holder.dataset.run);
    const family = data.runs[index].families[Number(holder.dataset.family)];
    for (const spec of familyCharts(family, (own) => (several ? index % 7 : own))) new Chart(holder, spec);
  }
};
