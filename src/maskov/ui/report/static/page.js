// What the page does as a whole: its copy buttons.

for (const button of document.querySelectorAll("[data-copy]")) {
  const source = document.getElementById(button.dataset.copy);
  button.hidden = false;
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(source.textContent);
    } catch {
      // Without leave to write there, the text is chosen and copied as a reader would.
      getSelection().selectAllChildren(source);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}

drawCharts();
new Samples(document.getElementById("sample-browser"));
document.documentElement.dataset.ready = "true";
