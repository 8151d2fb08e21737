// Charts of runs that started from FASTA: one set for each parent.

const familyCharts = (family, hue) => [
  {
    title: `Mutation frequency by position: ${family.name}`, wide: true,
    caption: "Share of the samples that differ from the parent at each position.",
    x: { label: "position", whole: true }, y: { label: "share of samples", include: [0, 1] },
    series: [{ name: "changed", tone: hue(1), steps: true, x: [...family.changed, 0].map((_, index) => index + 0.5), y: family.changed }],
  },
  {
    title: `Distances: ${family.name}`,
    caption: "Positions at which two samples differ, and at which a sample differs from its parent.",
    x: { label: "positions that differ", whole: true }, y: { label: "share", include: [0] },
    series: [["between samples", "distances", 0], ["to the parent", "to_parent", 1]].filter(([, key]) => family[key].length).map(([name, key, tone]) => ({
      name, tone: several ? hue(tone) : tone, dash: tone, steps: true, x: [...family[key], 0].map((_, index) => index - 0.5), y: family[key],
    })),
  },
  {
    title: `E_norm by number of mutations: ${family.name}`,
    caption: "Mean of the samples with so many mutations; the band holds the middle 80 %.",
    x: { label: "mutations", whole: true }, y: { label: "E_norm" },
    series: [{
      name: "E_norm", tone: hue(2), marker: 0, x: family.energies.map((one) => one.count), y: family.energies.map((one) => one.mean),
      low: family.energies.map((one) => one.low), high: family.energies.map((one) => one.high),
    }],
  },
].filter((spec) => spec.series.length && spec.series[0].x.length);
