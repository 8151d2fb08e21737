// The colour theme: the system's until the button changes it.

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
