// The copy buttons.

for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      // Without clipboard permission, select the text and copy it.
      getSelection().selectAllChildren(source);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

drawCharts();
new Samples(document.getElementById("sample-browser"), data.runs);
document.documentElement.dataset.ready = "true";
