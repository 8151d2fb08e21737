// What the page does as a whole: its colours and its copy buttons.

const themeButton = document.getElementById("theme");
const darkOutside = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.theme ?? (darkOutside.matches ? "dark" : "light")) === "dark";
const nameTheme = () => {
  themeButton.textContent = isDark() ? "Light" : "Dark";
  themeButton.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
};
themeButton.addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  nameTheme();
});
darkOutside.addEventListener("change", nameTheme);
nameTheme();
themeButton.hidden = false;

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
